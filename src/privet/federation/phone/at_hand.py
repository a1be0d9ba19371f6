"""What a phone has of a model: its network, its versions, where it stands; and trying a version."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import nn

from privet.federation import wire
from privet.federation.phone import standing as files
from privet.federation.phone.line import Declined, Unreachable
from privet.federation.phone.records import Records
from privet.federation.phone.shared import Shared
from privet.federation.phone.stages import IN_A_ROUND, Stage
from privet.federation.phone.standing import Standing
from privet.federation.phone.storage import own_folder
from privet.federation.phone.training import network_of, size_of, tried

STATE: Final = "state.json"


class ModelAtHand:
    """One model on one phone, without what it does in a round.

    Args:
        offer: what the server says it is.
        folder: its own.
        records: what it trains on, and is tried on.
        shared: with the phone's other models.
    """

    def __init__(self, offer: wire.Offer, folder: Path, records: Records, shared: Shared) -> None:
        self.offer, self.folder = offer, own_folder(folder)
        self.records, self.shared = records, shared
        self.name = offer.model
        self.network: nn.Module = network_of(offer)
        self.size = size_of(self.network)
        self.standing = files.read(self.folder / STATE)

    def weights(self, version: int) -> Path:
        """The file of a version."""
        return self.folder / f"weights-{version}.safetensors"

    def fetch(self, version: int) -> None:
        """Have this version here; older ones go."""
        path = self.weights(version)
        url = f"v1/models/{self.name}/versions/{version}"
        held = self.standing.ticket
        if held is not None and held.base_version == version:
            url = held.get_url
        self.shared.server.fetch(self.name, version, url, path, weights=self.size)
        self._keep(version=version)
        kept = {path, *(() if held is None else [self.weights(held.base_version)])}
        for old in set(self.folder.glob("weights-*")) - kept:
            old.unlink(missing_ok=True)

    def refresh(self, now: float) -> None:
        """Have the newest version here for the apps that use it; between rounds, where it may."""
        if self.standing.stage in IN_A_ROUND or not self.shared.policies.downloads(
            self.shared.surroundings.at(now)
        ):
            return
        try:
            for offer in self.shared.server.offers():
                if offer.model == self.name and offer.version > self.standing.version:
                    self.fetch(offer.version)
        except (Unreachable, Declined) as error:
            self._say("declined", why=str(error))

    def _try(self, version: int) -> None:
        """Federated evaluation, where the model asks for it; once for each version."""
        if not self.offer.tries or self.standing.tried_version >= version:
            return
        right = tried(self.network, self.weights(version), self.records, tries=self.offer.tries)
        if right is not None:
            self._report(version, right)
        self._keep(tried_version=version)

    def _report(self, version: int, right: int) -> None:
        """Nothing hangs on it: a server that does not want it is left alone."""
        tries = self.offer.tries
        try:
            self.shared.server.report(self.name, version=version, tried=tries, right=right)
        except Declined as no:
            self._say("declined", why=str(no))

    def _try_last_version(self) -> None:
        for offer in self.shared.server.offers():
            if offer.model == self.name:
                if offer.version > self.standing.version:
                    self.fetch(offer.version)
                self._try(offer.version)

    def _to(self, stage: Stage, **changes: Any) -> None:
        self._keep_as(self.standing.to(stage, **changes))

    def _keep(self, **changes: Any) -> None:
        self._keep_as(replace(self.standing, **changes))

    def _keep_as(self, standing: Standing) -> None:
        files.write(self.folder / STATE, standing)
        self.standing = standing

    def _say(self, event: str, **facts: Any) -> None:
        self.shared.watch(event, {"model": self.name, "at": time.time()} | facts)
