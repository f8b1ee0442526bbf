"""Kafka's control protocol in bytes: requests from columns, answers into columns."""

from .request import Encoder, Frame, endpoint_of
from .response import decode
from .version import Versions, versions_for

__all__ = ["Encoder", "Frame", "Versions", "decode", "endpoint_of", "versions_for"]
