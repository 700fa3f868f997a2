"""One process owns a log file: a locked file beside it says which."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from landed.errors import ConfigurationError, StorageInUseError


class FileLock:
    """The lock of one log, held from ``take`` to ``release``.

    The kernel drops it when the process dies, however it dies, so that a lock file left behind
    means nothing: the next owner takes it over. The lock belongs to the open file and not to the
    process, so that a second opening in the same process is refused too.
    """

    __slots__ = ("_advice", "_descriptor", "_path")

    def __init__(self, log: Path, *, advice: str = "use landed serve to share it") -> None:
        self._path = log.with_name(log.name + ".lock")
        self._advice = advice
        self._descriptor: int | None = None

    def take(self) -> None:
        """Become the owner, or say who is.

        Raises:
            StorageInUseError: a living process holds it; ``landed serve`` would share the log.
            ConfigurationError: the lock file cannot be made here.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the lock file {self._path}: {error.strerror}; "
                "the log needs a directory this user may write to"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise ConfigurationError(
                    f"cannot lock {self._path}: {error.strerror}; "
                    "the log needs a local file system that can lock files"
                ) from None
            whose = f"in use by pid {owner}" if owner else "in use by another process"
            raise StorageInUseError(
                f"{self._path.with_suffix('')} is {whose}: {self._advice}"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go. Idempotent. The file stays: removing it could take away a successor's lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)
