"""Checkpoints in torch.distributed.checkpoint's format, with atomic saves and checks before loading.

A save writes its tensors into a new folder, ``shardc-save-<id>``, beside that of the save before. Then its
``.metadata``, which has the place of each tensor, atomically replaces the old one. Until then the old
checkpoint stays valid. ``shardc.json`` beside the tensors has the hashes of all files, and the state of the
user's objects as JSON.
"""
