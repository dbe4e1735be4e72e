"""Makes Python fit for ranks that are threads; to be imported before torch.

Python before 3.12 computes a functools.cached_property under a lock that all
objects share. A rank that communicates inside one would keep the others from the
call it waits for.
"""
import contextlib
import functools

make_cached_property = functools.cached_property.__init__


def make_without_lock(self, func) -> None:
    make_cached_property(self, func)
    self.lock = contextlib.nullcontext()


functools.cached_property.__init__ = make_without_lock
