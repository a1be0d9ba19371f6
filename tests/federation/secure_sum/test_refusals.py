"""A server that lies, and messages that were changed, swapped or sent again."""

import json
from dataclasses import replace

import numpy as np
import pytest

from privet.federation.secure_sum import GivenUp, Refused, SecureClient, SecureServer, Stage, codec
from privet.federation.secure_sum.keys import new_secret, public_of
from privet.federation.secure_sum.messages import Agreed, Inbox, Keys, Masked, Shares, Survivors
from privet.federation.secure_sum.transcript import told


def _others(names, *gone):
    return tuple(sorted(set(names) - set(gone)))


# --- what a client refuses -----------------------------------------------------------------------


def test_a_client_is_in_no_cohort_smaller_than_it_asks_for(cohort):
    made = cohort(5, threshold=3)
    with pytest.raises(Refused, match="too small"):
        SecureClient(made.terms, "c01", made.device_keys["c01"].sign, least=4)


def test_a_client_is_in_no_cohort_where_its_key_is_another(cohort):
    made = cohort(5)
    with pytest.raises(Refused, match="not with its own key"):
        SecureClient(made.terms, "c01", made.device_keys["c02"].sign)
    with pytest.raises(Refused, match="not with its own key"):
        SecureClient(made.terms, "stranger", made.device_keys["c02"].sign)


def _forged(made, keys):
    """The server puts a key of its own in a client's place."""
    forged = replace(keys.members[1], mask_key=public_of(new_secret()))
    return replace(keys, members=(keys.members[0], forged, *keys.members[2:]))


def _swapped(made, keys):
    a, b = keys.members[1:3]
    swapped = (replace(a, sender=b.sender), replace(b, sender=a.sender))
    return replace(keys, members=(keys.members[0], *swapped, *keys.members[3:]))


def _box_for_mask(made, keys):
    one = keys.members[1]
    turned = replace(one, box_key=one.mask_key, mask_key=one.box_key)
    return replace(keys, members=(keys.members[0], turned, *keys.members[2:]))


def _too_few(made, keys):
    return replace(keys, members=keys.members[:2])


def _without_me(made, keys):
    return replace(keys, members=keys.members[1:])


def _stranger(made, keys):
    return replace(keys, members=(*keys.members, replace(keys.members[1], sender="x")))


def _of_another_sum(made, keys):
    return replace(keys, terms=bytes(32))


@pytest.mark.parametrize(
    "lie",
    [_forged, _swapped, _box_for_mask, _too_few, _without_me, _stranger, _of_another_sum],
)
def test_lies_about_keys_are_refused(cohort, lie):
    made = cohort(5).until(Stage.SHARES)
    honest = made.server.for_client("c01")
    client = made.clients["c01"]
    with pytest.raises(Refused):
        client.share(lie(made, honest))
    client.share(honest)  # nothing has changed


def test_keys_of_an_earlier_sum_are_refused(cohort):
    """Replayed: the same devices, the same round, signed then."""
    old = cohort(5).until(Stage.SHARES).server.for_client("c01")
    made = cohort(5).until(Stage.SHARES)
    mine = made.clients["c01"].advertise()
    replayed = Keys(terms=made.terms.digest, members=(mine, *old.members[1:]))
    with pytest.raises(Refused, match="did not sign"):
        made.clients["c01"].share(replayed)


def test_one_key_for_two_devices_is_refused(cohort):
    """A colluding device may sign another's public key as its own: the masks would be the same."""
    made = cohort(5)
    thief, victim = made.clients["c02"]._memory, made.clients["c03"]._memory
    text = made.terms.text("keys", victim.advertise.box_key, thief.advertise.mask_key)
    stolen = replace(
        thief.advertise,
        box_key=victim.advertise.box_key,
        signature=made.device_keys["c02"].sign(text),
    )
    honest = made.until(Stage.SHARES).server.for_client("c01")
    members = tuple(stolen if one.sender == "c02" else one for one in honest.members)
    with pytest.raises(Refused, match="twice"):
        made.clients["c01"].share(replace(honest, members=members))


def _changed_box(boxes):
    sender = sorted(boxes)[0]
    return boxes | {sender: boxes[sender][:-1] + bytes([boxes[sender][-1] ^ 1])}


def _swapped_senders(boxes):
    a, b = sorted(boxes)[:2]
    return boxes | {a: boxes[b], b: boxes[a]}


def _two_boxes(boxes):
    return dict(sorted(boxes.items())[:1])


@pytest.mark.parametrize("lie", [_changed_box, _swapped_senders, _two_boxes])
def test_boxes_that_were_tampered_with_are_refused(cohort, lie):
    made = cohort(5).until(Stage.INPUTS)
    inbox = made.server.for_client("c01")
    with pytest.raises(Refused):
        made.clients["c01"].mask(replace(inbox, boxes=lie(inbox.boxes)), np.zeros(7))


def test_a_box_for_another_client_is_refused(cohort):
    made = cohort(5).until(Stage.INPUTS)
    mine, other = made.server.for_client("c01"), made.server.for_client("c02")
    boxes = mine.boxes | {"c03": other.boxes["c03"]}
    with pytest.raises(Refused, match="changed, or that are not for this client"):
        made.clients["c01"].mask(replace(mine, boxes=boxes), np.zeros(7))


def test_its_own_box_sent_back_is_refused(cohort):
    """The key is the same in both directions; what the box is about is not."""
    made = cohort(5).until(Stage.INPUTS)
    mine = made.server.for_client("c01")
    reflected = made.said["c01", Stage.SHARES].boxes["c03"]
    with pytest.raises(Refused, match="changed"):
        made.clients["c01"].mask(replace(mine, boxes=mine.boxes | {"c03": reflected}), np.zeros(7))


def test_a_second_update_under_the_same_masks_is_not_sent(cohort):
    """The difference of two would be the difference of the updates."""
    made = cohort(5).until(Stage.INPUTS)
    client, inbox = made.clients["c01"], made.server.for_client("c01")
    first = client.mask(inbox, np.zeros(7))
    assert client.mask(inbox, np.ones(7)) == first
    fewer = Inbox(terms=inbox.terms, boxes=dict(sorted(inbox.boxes.items())[:3]))
    with pytest.raises(Refused, match="second, different"):
        client.mask(fewer, np.zeros(7))


def test_the_classic_attack_is_refused(cohort):
    """First c05 is said to be there, then to be gone: seed and mask key of the same client."""
    made = cohort(5, threshold=3).until(Stage.AGREEMENT)
    client, digest = made.clients["c01"], made.terms.digest
    everybody = Survivors(terms=digest, names=_others(made.clients))
    without = Survivors(terms=digest, names=_others(made.clients, "c05"))
    client.agree(everybody)
    with pytest.raises(Refused, match="second, different"):
        client.agree(without)
    made.stage()
    answer = client.unmask(made.server.for_client("c01"))
    assert set(answer.seeds) == set(made.clients)
    assert not answer.mask_keys
    with pytest.raises(Refused, match="second, different"):
        client.unmask(Agreed(terms=digest, signatures={}))
    with pytest.raises(Refused):
        client.agree(without)


def test_a_client_reveals_one_half_of_each_peer(cohort):
    made = cohort(6, threshold=4).until(Stage.UNMASKING, {Stage.INPUTS: {"c02", "c05"}})
    answer = made.clients["c01"].unmask(made.server.for_client("c01"))
    assert set(answer.seeds) == {"c01", "c03", "c04", "c06"}
    assert set(answer.mask_keys) == {"c02", "c05"}


def test_a_server_that_tells_two_stories_gets_no_shares(cohort):
    """Half the clients are told that c05 is gone. Their signatures do not fit one another's."""
    made = cohort(5, threshold=3).until(Stage.AGREEMENT)
    digest = made.terms.digest
    stories = {
        True: Survivors(terms=digest, names=_others(made.clients)),
        False: Survivors(terms=digest, names=_others(made.clients, "c05")),
    }
    heard = {name: name in ("c01", "c02", "c05") for name in made.clients}
    signed = {n: made.clients[n].agree(stories[heard[n]]).signature for n in made.clients}
    for name in ("c01", "c03"):
        with pytest.raises(Refused, match="told different things"):
            made.clients[name].unmask(Agreed(terms=digest, signatures=signed_but(signed, "c05")))


def signed_but(signatures, *gone):
    return {name: one for name, one in signatures.items() if name not in gone}


def test_the_signature_covers_keys_and_sharers_too(cohort):
    """Not only U3, as in the paper: whoever was told of other boxes signs something else."""
    made = cohort(5, threshold=3).until(Stage.INPUTS)
    inbox = made.server.for_client("c02")
    fewer = replace(inbox, boxes=signed_but(inbox.boxes, "c05"))
    made.clients["c02"].mask(fewer, np.zeros(7))
    members, some = made.server._memory.advertised, ("c01", "c02", "c03")
    texts = {
        told(made.terms, members, made.clients, some),
        told(made.terms, members, _others(made.clients, "c05"), some),
        told(made.terms, signed_but(members, "c05"), made.clients, some),
        told(made.terms, members, made.clients, (*some, "c04")),
    }
    assert len(texts) == 4


@pytest.mark.parametrize(
    "names",
    [("c01", "c02"), ("c02", "c03", "c04"), ("c01", "c02", "x"), ("c01", "c02", "c03", "c03")],
    ids=["too few", "without the client", "a stranger", "one twice"],
)
def test_impossible_survivors_are_refused(cohort, names):
    made = cohort(5, threshold=3).until(Stage.AGREEMENT)
    with pytest.raises(Refused):
        made.clients["c01"].agree(Survivors(terms=made.terms.digest, names=names))


def test_too_few_or_foreign_agreements_are_refused(cohort):
    made = cohort(5, threshold=3).until(Stage.UNMASKING)
    agreed = made.server.for_client("c01")
    two = dict(list(agreed.signatures.items())[:2])
    forged = agreed.signatures | {"c02": agreed.signatures["c03"]}
    for signatures in (two, forged, two | {"x": agreed.signatures["c05"]}):
        with pytest.raises(Refused):
            made.clients["c01"].unmask(replace(agreed, signatures=signatures))
    made.clients["c01"].unmask(agreed)


def test_steps_out_of_turn_are_refused(cohort):
    made = cohort(5, threshold=3).until(Stage.AGREEMENT)
    late = SecureClient(made.terms, "c01", made.device_keys["c01"].sign)
    with pytest.raises(Refused, match="out of turn"):
        late.agree(made.server.for_client("c01"))
    made.clients["c02"].forget()
    with pytest.raises(Refused, match="out of turn"):
        made.clients["c02"].agree(made.server.for_client("c02"))


def test_an_update_of_another_size_is_refused(cohort):
    made = cohort(5, size=7).until(Stage.INPUTS)
    with pytest.raises(Refused, match="another size"):
        made.clients["c01"].mask(made.server.for_client("c01"), np.zeros(8))


# --- what a server refuses -----------------------------------------------------------------------


@pytest.mark.parametrize("stage", list(Stage)[:5])
def test_a_message_again_changes_nothing_and_another_one_is_refused(cohort, stage):
    made = cohort(4, threshold=3).until(stage)
    message = made.answer("c01")
    made.server.take(message)
    before = made.server.state()
    made.server.take(message)
    assert made.server.state() == before
    name = {
        Stage.KEYS: "box_key",
        Stage.SHARES: "commitment",
        Stage.INPUTS: "vector",
        Stage.AGREEMENT: "signature",
        Stage.UNMASKING: "seeds",
    }[stage]
    with pytest.raises(Refused, match="second, different"):
        made.server.take(replace(message, **{name: type(getattr(message, name))()}))


@pytest.mark.parametrize("stage", list(Stage)[:5])
def test_late_and_early_messages_and_strangers_are_refused(cohort, stage):
    made = cohort(4, threshold=3).until(stage)
    message = made.answer("c01")
    for bad in (replace(message, terms=bytes(32)), replace(message, sender="x")):
        with pytest.raises(Refused):
            made.server.take(bad)
    made.stage({"c01"})
    with pytest.raises(Refused, match=r"out of turn|no longer"):
        made.server.take(message)


def test_who_missed_a_stage_is_out(cohort):
    made = cohort(5, threshold=3)
    made.stage({"c02"})
    made.gone.clear()
    assert "c02" not in made.server.expected
    assert made.server.for_client("c02") is None
    message = made.clients["c01"].share(made.server.for_client("c01"))
    with pytest.raises(Refused, match="no longer, in the cohort"):
        made.server.take(replace(message, sender="c02"))


def test_a_late_masked_update_stays_hidden(cohort):
    """Of a client that was said to be gone the mask key is revealed, and its seed is not."""
    made = cohort(5, threshold=3).until(Stage.UNMASKING, {Stage.INPUTS: {"c05"}})
    inbox = {n: one.boxes["c05"] for n, one in made.server._memory.shares.items() if n != "c05"}
    late = made.clients["c05"].mask(Inbox(terms=made.terms.digest, boxes=inbox), np.zeros(7))
    with pytest.raises(Refused, match="out of turn"):
        made.server.take(late)
    made.stage()
    assert "c05" not in made.server.result.clients
    assert all("c05" not in made.said[n, Stage.UNMASKING].seeds for n in ("c01", "c02", "c03"))


def test_keys_that_no_device_signed_are_refused(cohort):
    made = cohort(4, threshold=3)
    honest, other = made.clients["c01"].advertise(), made.clients["c02"].advertise()
    for bad in (
        replace(honest, mask_key=other.mask_key),
        replace(honest, signature=other.signature),
        replace(honest, box_key=honest.mask_key),
    ):
        with pytest.raises(Refused, match="did not sign"):
            made.server.take(bad)


@pytest.mark.parametrize("name", ["box_key", "mask_key"])
def test_a_key_with_which_nobody_can_agree_is_refused_at_once(cohort, name):
    """Signed by its device, and of the right length: all others would have to leave the round."""
    made = cohort(4, threshold=3)
    bad = replace(made.clients["c01"].advertise(), **{name: bytes(32)})
    text = made.terms.text("keys", bad.box_key, bad.mask_key)
    signed = replace(bad, signature=made.device_keys["c01"].sign(text))
    with pytest.raises(Refused, match="nothing secret"):
        made.server.take(signed)
    assert made.server.here == frozenset()


@pytest.mark.parametrize("size", [0, 4 * 7 - 1, 4 * 7 + 1, 4 * 8])
def test_masked_updates_of_another_length_are_refused(cohort, size):
    made = cohort(4, threshold=3, size=7).until(Stage.INPUTS)
    with pytest.raises(Refused, match="another length"):
        made.server.take(Masked(terms=made.terms.digest, sender="c01", vector=bytes(size)))


def test_boxes_for_others_are_refused(cohort):
    made = cohort(4, threshold=3).until(Stage.SHARES)
    message = made.answer("c01")
    for boxes in (signed_but(message.boxes, "c02"), message.boxes | {"c01": b""}):
        with pytest.raises(Refused, match="boxes for others"):
            made.server.take(replace(message, boxes=boxes))


def test_both_halves_of_one_client_are_refused(cohort):
    made = cohort(5, threshold=3).until(Stage.UNMASKING, {Stage.INPUTS: {"c05"}})
    answer = made.answer("c01")
    for bad in (
        replace(answer, mask_keys=answer.mask_keys | {"c02": answer.seeds["c02"]}),
        replace(answer, seeds=signed_but(answer.seeds, "c02")),
        replace(answer, seeds=answer.seeds | {"c02": b"\xff" * 33}),
    ):
        with pytest.raises(Refused):
            made.server.take(bad)


@pytest.mark.parametrize("half", ["seeds", "mask_keys"])
def test_a_wrong_share_is_noticed_and_the_round_given_up(cohort, half):
    """Without the commitment, a wrong share of a seed would give a sum full of noise."""
    made = cohort(5, threshold=3).until(Stage.UNMASKING, {Stage.INPUTS: {"c05"}})
    for name in ("c01", "c02", "c03"):
        answer = made.answer(name)
        if name == "c02":
            shares = getattr(answer, half)
            owner = sorted(shares)[-1]
            wrong = shares | {owner: bytes(32) + b"\x07"}
            answer = replace(answer, **{half: wrong})
        made.server.take(answer)
    with pytest.raises(GivenUp, match=r"do not fit it: .*'c0[45]'"):
        made.server.close()
    assert made.server.stage is Stage.GIVEN_UP
    assert not SecureServer.restored(made.server.state())._total.any()


# --- JSON ----------------------------------------------------------------------------------------


def test_all_messages_survive_json(cohort):
    made = cohort(4, threshold=3)
    questions = []
    while made.server.stage is not Stage.DONE:
        questions += [made.server.for_client("c01")] if made.server.stage is not Stage.KEYS else []
        made.stage()
    for message in (*questions, *made.said.values(), made.terms):
        assert codec.from_bytes(type(message), codec.to_bytes(message)) == message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"terms":"","sender":"a","commitment":"","boxes":{},"more":1}',
        b'{"terms":"","sender":1,"commitment":"","boxes":{}}',
        b'{"terms":"","sender":"a","commitment":"","boxes":{"b":1}}',
        b'{"terms":"","sender":"a","commitment":"","boxes":[]}',
        b'{"terms":"","sender":"a","commitment":"%%","boxes":{}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused(text):
    with pytest.raises(Refused):
        codec.from_bytes(Shares, text)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("threshold", 2), ("threshold", 9), ("size", 0), ("longest", "NaN"), ("bits", 16)],
)
def test_terms_that_nobody_may_offer_are_refused_like_any_message(cohort, fact, value):
    """From a server they are no fault of the phone's own input."""
    terms = cohort(4, threshold=3).terms
    said = json.loads(codec.to_bytes(terms)) | {fact: value}
    with pytest.raises(Refused, match="no Terms"):
        codec.from_bytes(type(terms), json.dumps(said).replace('"NaN"', "NaN").encode())


def test_the_same_message_is_the_same_bytes():
    one = Shares(terms=b"t", sender="a", commitment=b"", boxes={"b": b"1", "c": b"2"})
    other = Shares(terms=b"t", sender="a", commitment=b"", boxes={"c": b"2", "b": b"1"})
    assert codec.to_bytes(one) == codec.to_bytes(other)
