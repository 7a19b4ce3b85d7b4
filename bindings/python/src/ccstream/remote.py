"""Remote datasets: options, and reading single files."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import _ccstream


def configure_remote(*, endpoint: str | None = None, cache: str | os.PathLike[str] | None = None,
                     cache_size: int = 64 << 30, instance_metadata: bool = False,
                     allow_private: bool = False) -> None:
    """Sets how this process reads remote datasets: a dataset path may be https://HOST/PATH, s3://BUCKET/PREFIX or
    hf://datasets/OWNER/NAME. Call it at most once, before the first remote dataset is opened; without a call the
    defaults apply.

    endpoint: URL of the S3 server (MinIO, Ceph, R2, https://storage.googleapis.com); None: AWS_ENDPOINT_URL_S3, else
        that of the AWS profile, else Amazon.
    cache: local cache folder (8 MiB chunks, shared by all processes of the machine); None: no cache. A run whose chunks
        are all cached needs no server.
    cache_size: size limit of the cache in bytes, at least 256 MiB; least recently used chunks are evicted first.
    instance_metadata: as a last resort, get S3 keys from the instance metadata service.
    allow_private: host names and redirects may lead to private addresses, as within a company. Without it only endpoints
        and locations written with a private host (http://10.0.0.5/d, http://localhost/d, http://nas/d) may.

    ExistsError: a remote dataset was opened, or options were set before; UsageError: cache_size; StorageError: the
    cache cannot be created.
    """
    _ccstream.configure_remote(endpoint, None if cache is None else os.fspath(cache), cache_size, instance_metadata,
                               allow_private)


def read_remote(location: str, write: Callable[[bytes], object]) -> None:
    """Reads https://HOST/PATH, s3://BUCKET/KEY or hf://datasets/OWNER/NAME/FILE sequentially, and calls `write` with chunks of
    at most 1 MiB: the `write` of a file, or the `append` of a list. Transient failures are retried; the options of
    configure_remote apply.

    UsageError: not a location; NotFoundError: no such file; StorageError: the server cannot be reached, or refuses;
    CorruptError: the file was replaced while it was read. Exceptions of `write` are passed on.
    """
    _ccstream.read_remote(location, write)
