"""Quantities in the format of Kubernetes: resource.Quantity, "ParseQuantity"."""

from decimal import Decimal

import pytest

from tfcluster_operator.declaration.quantities import quantity, whole


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1", 1),
        (4, 4),
        (0.5, Decimal("0.5")),
        ("1000m", 1),
        ("2Gi", 2 * 2**30),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1E2", 100),
        (".5", Decimal("0.5")),
        ("5.", 5),
        ("3k", 3000),
        ("100n", Decimal("1e-7")),
        ("-1", -1),
        *((text, None) for text in ("lots", "", "1.2.3", "1KiB", "1Ki2", "e3", "1 Gi", "1e999999999", "1" * 99)),
        *((other, None) for other in (True, None, [], {}, float("inf"), float("nan"))),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(value, number):
    assert quantity(value) == number


@pytest.mark.parametrize(
    ("value", "count"),
    [("1", 1), ("1.0", 1), (2.0, 2), ("1e0", 1), ("2000m", 2), ("0", 0), ("0.5", None), ("-1", None)],
)
def test_devices_are_granted_whole(value, count):
    assert whole(value) == count
