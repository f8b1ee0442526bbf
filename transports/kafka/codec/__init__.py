"""Kafka's control protocol in bytes: requests encoded from columns, responses decoded into columns."""

from .request import Encoder, Frame, endpoint_of
from .response import Decoder
from .version import Versions, versions_for

__all__ = ["Decoder", "Encoder", "Frame", "Versions", "endpoint_of", "versions_for"]
