"""A model server that knows the true bill, for every test that needs models without any."""

from tests.fake.behaviour import Behaviour, Fault
from tests.fake.bill import Bill, Served
from tests.fake.server import FakeUpstream

__all__ = ["Behaviour", "Bill", "FakeUpstream", "Fault", "Served"]
