"""A phone's part in a secure sum: hears what is due, and says it, until there is an outcome.

Its state is on disk before anything is said, so a killed phone says the same again. Where it has
sent its masked update it enters no other sum with it: two sums of one update could be compared.
"""

from pathlib import Path
from typing import Final, final

import numpy as np
from safetensors.numpy import load_file

from privet.federation import wire
from privet.federation.phone.standing import Ticket
from privet.federation.phone.storage import write_durably
from privet.federation.phone.talking import Server
from privet.federation.secure_sum import Refused, SecureClient, Stage, Terms, codec, messages

LEAST: Final = 3  # of a cohort's threshold; what this phone is hidden among
STEPS: Final[dict[str, tuple[str, type[messages.Message]]]] = {
    Stage.SHARES: ("share", messages.Keys),
    Stage.INPUTS: ("mask", messages.Inbox),
    Stage.AGREEMENT: ("agree", messages.Survivors),
    Stage.UNMASKING: ("unmask", messages.Agreed),
}


@final
class Summing:
    """One update of one phone in the secure sum of its round.

    Args:
        server: to talk with.
        held: the ticket of the round.
        model, size: that the update is of, and how many numbers it has.
        update: the file that the update lies in.
        state: the file that this phone's part is kept in.
    """

    def __init__(
        self, server: Server, held: Ticket, *, model: str, size: int, update: Path, state: Path
    ) -> None:
        self._server, self._held = server, held
        self._model, self._size, self._update, self._state = model, size, update, state

    def step(self) -> wire.Outcome | float:
        """One exchange; the outcome, or seconds until the next one.

        Raises:
            secure_sum.Refused: the server asks for what this phone does not give.
        """
        heard = self._server.sum_step(self._held.ticket)
        if heard.outcome is not None:
            return heard.outcome
        if heard.terms is None or heard.answered:
            return heard.retry_after
        client = self._client(codec.from_bytes(Terms, heard.terms.encode()))
        answer = self._answer(client, heard)
        write_durably(self._state, client.state())
        self._server.say_in_sum(self._held.ticket, heard.stage, codec.to_bytes(answer))
        return 0.0

    @property
    def masked(self) -> bool:
        """Whether the masked update may have been sent, in this round."""
        if not self._state.exists():
            return False
        client = self._restored()
        return client.has_masked and client.terms.round == self._held.round

    def _client(self, terms: Terms) -> SecureClient:
        self._require_ours(terms)
        if self._state.exists():
            client = self._restored()
            if client.terms == terms:
                return client
            if client.has_masked and client.terms.round == terms.round:
                raise Refused("another sum of an update that was masked already")
        return SecureClient(terms, self._server.me.device, self._server.sign, least=LEAST)

    def _restored(self) -> SecureClient:
        return SecureClient.restored(self._state.read_bytes(), self._server.sign)

    def _require_ours(self, terms: Terms) -> None:
        """Of this round of this model, with the norm that the ticket says."""
        asked = (terms.model, terms.round, terms.base_version, terms.size, terms.longest)
        held = self._held
        ours = (self._model, held.round, held.base_version, self._size, held.longest)
        if asked != ours:
            raise Refused("terms of something else", got=asked, expected=str(ours))

    def _answer(self, client: SecureClient, heard: wire.SumStep) -> messages.Message:
        if heard.stage == Stage.KEYS:
            return client.advertise()
        if heard.stage not in STEPS or heard.question is None:
            raise Refused("a question that no sum has", got=heard.stage)
        name, kind = STEPS[heard.stage]
        question = codec.from_bytes(kind, heard.question.encode())
        if heard.stage != Stage.INPUTS:
            said: messages.Message = getattr(client, name)(question)
            return said
        assert isinstance(question, messages.Inbox)
        return client.mask(question, np.asarray(load_file(self._update)["change"]))
