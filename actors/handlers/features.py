"""The features that the cluster agrees on: what is stored at a takeover, and what tools ask for afterwards.

What was written last is what holds: the store's answer to a write carries the version it stands under, so that nothing
has to be waited for.

Source: the classic controller's maybeSetupFeatureVersioning and processFeatureUpdatesWithActiveController.
"""

import msgspec

from kactl.errors import BadRequest, ErrorCode, Remedy, StoreDamaged, StoreError
from kactl.machines import features as feature_rules
from kactl.messages.admin import FeatureResult, FeatureUpdatesRequested
from kactl.messages.events import Event
from kactl.model import Broker, Features
from kactl.runtime.logs import logger

from .base import Handler, Handlers

log = logger(__name__)


class FeatureEvents(Handlers):
    """See the module."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {FeatureUpdatesRequested: self.on_feature_updates_requested}

    async def take_over(self) -> None:
        """Bring what is stored in line with our protocol level; the first that a new controller does.

        What cannot be read is left alone: the cluster is led without features then, and none can be updated.
        """
        self.cluster.features = None
        try:
            stored = await self.store.features()
        except StoreDamaged as damaged:
            log.error("features are passed over, as brokers do: %s", damaged)
            return
        wanted = feature_rules.at_takeover(
            stored, versioning=self.settings.level.feature_versioning, format=self.settings.level.feature_format
        )
        if wanted is not None and stored is not None and stored.levels and not wanted.levels:
            log.warning("the features %s hold no longer", dict(stored.levels))
        self.cluster.features = (
            stored if wanted is None else await self.store.write_features(wanted, self.cluster.fence)
        )

    async def on_feature_updates_requested(self, event: FeatureUpdatesRequested) -> list[FeatureResult]:
        if not self.settings.level.feature_versioning:
            raise BadRequest("updates", "features are not finalized below protocol level 2.7: raise it on all brokers")
        held = self.cluster.features
        if held is None:
            raise BadRequest("updates", "what is stored of features cannot be read: mend it, then elect a controller")
        levels, results = feature_rules.update(
            event.updates,
            held.levels,
            supported=self.settings.supported_features,
            brokers=self.cluster.brokers.values(),
        )
        if event.dry_run or levels == held.levels:
            return results
        wanted = Features(levels, enabled=True, format=self.settings.level.feature_format)
        try:
            self.cluster.features = await self._write(wanted)
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.error("features could not be finalized: %s", failed)
            return [_failed(result, str(failed)) for result in results]
        log.info("finalized features are %s from now on", levels)
        return results

    async def _write(self, wanted: Features) -> Features:
        """Write; where the outcome is unknown, see whether it stands there.

        Raises:
            StoreError: it does not, or that cannot be known.
        """
        try:
            return await self.store.write_features(wanted, self.cluster.fence)
        except StoreError as failed:
            if failed.remedy is not Remedy.READ_BACK:
                raise
            stored = await self.store.features()
            if stored is None or msgspec.structs.replace(stored, version=wanted.version) != wanted:
                raise
            return stored

    def compatible(self, brokers: dict[int, Broker]) -> dict[int, Broker]:
        """Those of some registrations that support the finalized features; of the others it is said why not."""
        finalized = {} if self.cluster.features is None else self.cluster.features.levels
        if not finalized:
            return brokers
        fitting = {}
        for number, broker in brokers.items():
            lacking = feature_rules.incompatible(broker, finalized)
            if lacking:
                log.warning("broker %d is passed over: it does not support the features %s", number, lacking)
            else:
                fitting[number] = broker
        return fitting


def _failed(result: FeatureResult, reason: str) -> FeatureResult:
    if result.error != ErrorCode.NONE:
        return result
    return msgspec.structs.replace(result, error=ErrorCode.FEATURE_UPDATE_FAILED, message=reason)
