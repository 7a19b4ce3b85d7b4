"""ccstream: packed image-text data with permanent sample ids, for training in Python.

    ds = ccstream.Dataset("cc3m")
    dl = ccstream.DataLoader(ds, batch_size=512, image_size=224)
    for batch in dl:                                # one epoch
        x = torch.from_dlpack(batch["image"])       # uint8 (B, 224, 224, 3), no copy

Datasets are written by ccpack or by Writer. Every exception derives from ccstream.Error and from a
matching builtin (ValueError, FileNotFoundError, TimeoutError, ...); its text names the file, row or byte
and the remedy. ccstream.torch has losses and image normalisation for PyTorch.
"""

from ._ccstream import (
    Array,
    ClosedError,
    CorruptError,
    Error,
    ExistsError,
    ForkedError,
    LimitError,
    MismatchError,
    NotFoundError,
    OutOfMemoryError,
    StorageError,
    TimeoutError,
    UnsupportedError,
    UsageError,
    VersionError,
    version,
)
from .column import Caption, Column
from .dataset import Dataset, Sample
from .loader import Batch, DataLoader
from .loss import Loss, LossStep, State, loss_options
from .model import Model
from .norms import NORMS
from .remote import configure_remote, read_remote
from .tokenizer import Tokenizer
from .writer import Writer

__version__ = version()
__all__ = [
    "Array", "Batch", "Caption", "ClosedError", "Column", "CorruptError", "DataLoader", "Dataset", "Error", "ExistsError",
    "ForkedError", "LimitError", "Loss", "LossStep", "MismatchError", "Model", "NORMS", "NotFoundError", "OutOfMemoryError", "Sample",
    "State", "StorageError", "TimeoutError", "Tokenizer", "UnsupportedError", "UsageError",
    "VersionError", "Writer", "configure_remote", "loss_options", "read_remote", "version",
]
