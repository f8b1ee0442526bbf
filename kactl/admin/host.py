"""The service of an application, which exists while its controller does.

An application can be mounted before its controller is entered, and outlive it.
"""

from collections.abc import Callable
from http import HTTPStatus

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.model.errors import ErrorCode
from kactl.runtime.tasks import Tasks
from kactl.telemetry.attempts import Attempts, Recorded

from .interface_attempts import add_attempt
from .problem import Refused
from .schema import ProblemController
from .service import Service, Surroundings


class Host:
    """Finds the controller of each request.

    Args:
        controller: the controller, or a function that returns it; None while there is none.
        config: None for the defaults.

    Attributes:
        has_dashboard: whether the application serves the dashboard.
    """

    def __init__(
        self,
        controller: Controller | Callable[[], Controller | None],
        surroundings: Surroundings,
        *,
        config: Config | None = None,
    ) -> None:
        self._controller = controller
        self._surroundings = surroundings
        self._config = config
        self.prefix = surroundings.prefix
        self.trail = surroundings.trail
        self.has_dashboard = config is None or config.api.dashboard
        self._service: Service | None = None
        self._attempts: Attempts | None = None
        self._tasks = Tasks("the admin API")

    def find(self) -> Service | None:
        """Returns the service of the controller; None if the controller has not been entered, or was left."""
        controller = self._controller if isinstance(self._controller, Controller) else self._controller()
        if controller is None or not controller.is_open:
            self._forget()
            return None
        if self._service is None or self._service.controller is not controller:
            self._forget()
            config = Config(node_id=controller.node_id) if self._config is None else self._config
            self._service = Service(controller=controller, config=config, **vars(self._surroundings))
            self._attempts = controller.attempts
            self._attempts.attach(self._record)
            self._tasks.spawn(self._service.progress.run(controller.cluster))
        return self._service

    def service(self) -> Service:
        """Returns the service of the controller.

        Raises:
            Refused: 503, there is no controller now.
        """
        found = self.find()
        if found is None:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "No controller",
                "the controller of this application does not run now: it has not been started, or has been stopped; "
                "retry later",
                code=ErrorCode.BROKER_NOT_AVAILABLE,
                retriable=True,
            )
        return found

    def known_controller(self) -> ProblemController:
        """Returns the current controller as far as it is known."""
        service = self.find()
        return ProblemController(id=None, epoch=0) if service is None else service.known_controller()

    def close(self) -> None:
        """End the tasks and streams of the application."""
        self._surroundings.closing.set()
        self._forget()

    def _record(self, recorded: Recorded) -> None:
        """Add an attempt over another interface of the controller to the trail."""
        if self._service is not None:
            add_attempt(self.trail, recorded, node_id=self._service.controller.node_id)

    def _forget(self) -> None:
        self._service = None
        if self._attempts is not None:
            self._attempts.detach(self._record)
            self._attempts = None
        self._tasks.cancel()
