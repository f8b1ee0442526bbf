"""Finalized features: initialised at a takeover, updated on request.

The store's response to a write contains the new version, so an update takes effect when the write returns.

Source: the classic controller's maybeSetupFeatureVersioning and processFeatureUpdatesWithActiveController.
"""

import msgspec

from kactl.decide.machines import features as feature_rules
from kactl.decide.messages.admin import FeatureResult, UpdateFeatures
from kactl.decide.messages.events import Event
from kactl.model import Broker, Features
from kactl.model.errors import BadRequest, ErrorCode, Remedy, StoreDamaged, StoreError
from kactl.runtime.logs import logger

from .base import Handler, Handlers

log = logger(__name__)


class FeatureEvents(Handlers):
    """Handler of feature updates."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {UpdateFeatures: self.on_update_features}

    async def take_over(self) -> None:
        """Adapt the stored features to the protocol level; the first step of a takeover.

        Features that cannot be decoded are not changed: the controller runs without features and rejects updates.
        """
        self.cluster.features = None
        try:
            stored = await self.store.features()
        except StoreDamaged as damaged:
            log.error("features are ignored, as brokers ignore them: %s", damaged)
            return
        wanted = feature_rules.at_takeover(
            stored, versioning=self.settings.level.feature_versioning, format=self.settings.level.feature_format
        )
        if wanted is not None and stored is not None and stored.levels and not wanted.levels:
            log.warning("the features %s are no longer finalized", dict(stored.levels))
        self.cluster.features = (
            stored if wanted is None else await self.store.write_features(wanted, self.cluster.fence)
        )

    async def on_update_features(self, event: UpdateFeatures) -> list[FeatureResult]:
        if not self.settings.level.feature_versioning:
            raise BadRequest("updates", "features are not finalized below protocol level 2.7: raise it on all brokers")
        finalized = self.cluster.features
        if finalized is None:
            raise BadRequest("updates", "the stored features cannot be read: repair them, then elect a controller")
        levels, results = feature_rules.update(
            event.updates,
            finalized.levels,
            supported=self.settings.supported_features,
            brokers=self.cluster.brokers.values(),
        )
        if event.dry_run or levels == finalized.levels:
            return results
        wanted = Features(levels, enabled=True, format=self.settings.level.feature_format)
        try:
            self.cluster.features = await self._write(wanted)
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.error("features could not be finalized: %s", failed)
            return [_failed(result, str(failed)) for result in results]
        log.info("finalized features are now %s", levels)
        return results

    async def _write(self, wanted: Features) -> Features:
        """Write features; if the outcome is unknown, read them back.

        Raises:
            StoreError: they were not written, or that cannot be determined.
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
        """Returns the registrations that support the finalized features; logs why the others do not."""
        finalized = {} if self.cluster.features is None else self.cluster.features.levels
        if not finalized:
            return brokers
        fitting = {}
        for number, broker in brokers.items():
            lacking = feature_rules.incompatible(broker, finalized)
            if lacking:
                log.warning("broker %d is ignored: it does not support the features %s", number, lacking)
            else:
                fitting[number] = broker
        return fitting


def _failed(result: FeatureResult, reason: str) -> FeatureResult:
    if result.error != ErrorCode.NONE:
        return result
    return msgspec.structs.replace(result, error=ErrorCode.FEATURE_UPDATE_FAILED, message=reason)
