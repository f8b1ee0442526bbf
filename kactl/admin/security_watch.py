"""Weaknesses of a running process: insecure interfaces, certificates that expire, listeners unlike those of brokers."""

from collections.abc import Sequence

from anyio.abc import TaskGroup

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.telemetry.metrics import Reading

from . import exposure
from .broker_listeners import BrokerListeners
from .exposure import Opening
from .exposure_report import ExposureReport
from .served_certificates import ServedCertificates


class SecurityWatch:
    """Finds weaknesses and reports them in the log, the status and the gauges.

    Args:
        openings: see `exposure.checked`, which looks up names.
        certificates: those that the process presents besides the one of the admin API.

    Attributes:
        exposure: interfaces without encryption or authentication.
        certificates: all certificates that the process presents.
    """

    def __init__(
        self,
        controller: Controller,
        config: Config,
        openings: Sequence[Opening],
        certificates: ServedCertificates | None = None,
    ) -> None:
        self._clock = controller.clock
        self.certificates = ServedCertificates() if certificates is None else certificates
        self.exposure = ExposureReport(exposure.names(config), openings, now_ms=controller.clock.now_ms)
        self.exposure.update_network(controller)
        has_brokers = config.store.kind == "zookeeper"
        self._listeners = BrokerListeners(controller, config.kafka, self.exposure) if has_brokers else None
        self._has_listeners = has_brokers and bool(config.kafka.listeners)

    def start(self, tasks: TaskGroup) -> None:
        """Begin to watch."""
        tasks.start_soon(self.exposure.run, name="insecure interfaces")
        tasks.start_soon(self.certificates.run, lambda: self._clock.now_ms() / 1000, name="expiry of certificates")
        if self._listeners is not None:
            tasks.start_soon(self._listeners.run, name="listeners of brokers")

    @property
    def mismatches(self) -> tuple[str, ...] | None:
        """Differences between the listeners of brokers and those of kactl; None without Kafka listeners."""
        return self._listeners.mismatches if self._listeners is not None and self._has_listeners else None

    @property
    def without_controller(self) -> tuple[str, ...] | None:
        """Listeners of brokers on which admin clients find no controller; None without brokers of Kafka."""
        return None if self._listeners is None else self._listeners.without_controller

    @property
    def without_rack(self) -> str | None:
        """Which brokers have no rack while others have one; None without brokers of Kafka."""
        return None if self._listeners is None else self._listeners.without_rack

    def readings(self) -> dict[str, Reading]:
        """Returns the gauges for `kactl.telemetry.metrics`."""
        return {"kactl.security.insecure": self.exposure.rows, "kactl.certificate.expiry": self.certificates.rows}
