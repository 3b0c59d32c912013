"""A loss by its class and by its function, for tests that go through every door."""

from symloss import functional
from symloss.losses.catalogue import LOSSES, RECORDS
from symloss.losses.record import Record


def function_name(record: Record) -> str:
    return record.function_name


MODULES = {loss.__name__: loss for loss in LOSSES.values()}
FUNCTIONS = {record.function_name: getattr(functional, record.function_name) for record in RECORDS.values()}
