"""Checks that other packages are installed in a supported version."""

from importlib.metadata import PackageNotFoundError, version

from torch.torch_version import TorchVersion

from shardc.diagnostics.integrations import PackageMissing


def require(name: str, package: str, oldest: str) -> None:
    """Raise PackageMissing on behalf of the integration ``name`` unless ``package`` is new enough."""
    try:
        found = version(package)
    except PackageNotFoundError:
        raise PackageMissing(name=name, package=package, oldest=oldest, found="it is not installed") from None
    if TorchVersion(found) < oldest:
        raise PackageMissing(name=name, package=package, oldest=oldest, found=f"{found} is installed")
