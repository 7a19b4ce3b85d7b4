"""Options of datasets at a server."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import _ccstream


def configure_remote(*, endpoint: str | None = None, cache: str | os.PathLike[str] | None = None,
                     cache_size: int = 64 << 30, instance_metadata: bool = False,
                     allow_private: bool = False) -> None:
    """Sets how this process reads datasets at https://HOST/PATH, s3://BUCKET/PREFIX and
    hf://datasets/OWNER/NAME, which every path of a dataset may be. Call it once, before the first
    of them is opened; without a call all are as here.

    endpoint: URL of the S3 server (MinIO, Ceph, R2, https://storage.googleapis.com); None: that of
        AWS_ENDPOINT_URL_S3, of the AWS profile, or Amazon.
    cache: local cache folder (8 MiB chunks, shared by all processes of the machine); None: no cache. A run whose pieces are all there needs no server.
    cache_size: its limit in bytes, at least 256 MiB; what was not used for longest goes first.
    instance_metadata: where S3 keys are neither in the environment nor in the files of the AWS
        tools, ask the metadata service of this machine.
    allow_private: names and redirects may lead to private addresses, as inside a company; without it only a location
        that is written with one (http://10.0.0.5/d, http://localhost/d, http://nas/d), or an endpoint.

    ExistsError: a remote dataset was opened, or this was called, before; UsageError: cache_size;
    StorageError: the cache cannot be made.
    """
    _ccstream.configure_remote(endpoint, None if cache is None else os.fspath(cache), cache_size, instance_metadata,
                               allow_private)


def read_remote(location: str, write: Callable[[bytes], object]) -> None:
    """Reads a file at https://HOST/PATH, s3://BUCKET/KEY or hf://datasets/OWNER/NAME/FILE from front to back and calls `write`
    with pieces of at most 1 MiB: the `write` of a file, or the `append` of a list. Requests that may succeed later are
    repeated; configure_remote's options hold.

    UsageError: no location; NotFoundError: no such file; StorageError: the server cannot be reached, or refuses;
    DataError: the file was replaced meanwhile; what `write` raises.
    """
    _ccstream.read_remote(location, write)
