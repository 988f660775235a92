"""Checkpoints in torch.distributed.checkpoint's format: committed at the end, checked before they are read.

A save writes its tensors into a folder of its own, ``shardc-save-<id>``, beside those of the save before. It
is done when its ``.metadata``, which says where each tensor is, has replaced the old one in one step: until
then the old checkpoint is whole. ``shardc.json`` beside the tensors has the hashes of all files and the state
of the user's objects, as JSON.
"""
