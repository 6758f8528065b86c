"""Each validator of watch_validators.py, and the comparison of the trees, finds nothing in a
daemon's messages, and finds each planted violation."""

import copy
import dataclasses

import pytest
from pagoda_daemon import Daemon
from pagoda.v1 import events_pb2, types_pb2
from shadow_tree import ShadowTree, block_hash
from watch_history import ALL_TYPES, EVERYTHING, OWN_DOING, TYPES, End, History, Message, Stream, bounds
from watch_round import BLUE, OFFERED_RATE, RED, TWO, open_ground
from watch_trees import blocks_of, compare_trees
from watch_validators import VALIDATORS, violations

SECONDS = 0.8  # The traffic of a round, if the machine keeps up with it.
MOST_SECONDS = 10
MOST_ROUNDS = 8


class NoPlaceError(AssertionError):
    """A recording does not contain what a test needs. Another round can."""


class Rounds:
    """Rounds of the battery: two windows, two tiers, two tenants, and each kind of subscriber. What
    happens in a round depends on chance and on the machine's load. So a round is recorded when no
    earlier one contains what a test needs."""

    def __init__(self, make_folder):
        self.recorded = []
        self._make_folder = make_folder
        self._seconds = SECONDS
        self._error = None

    def find(self, attempt):
        """The first result of attempt(round). The attempt raises NoPlaceError if the round does not
        contain what it needs."""
        for number in range(MOST_ROUNDS):
            if number == len(self.recorded):
                self._record_once_more()
            try:
                return attempt(self.recorded[number])
            except NoPlaceError as error:
                reason = error
        raise AssertionError(f"none of {MOST_ROUNDS} rounds fits: {reason}")

    def _record_once_more(self):
        assert self._error is None, f"an earlier round failed: {self._error!r}"
        try:
            self._record()
        except BaseException as error:
            self._error = error
            raise

    def _record(self):
        folder = self._make_folder()

        def start(**sections):
            return Daemon(folder, **sections).start()

        with open_ground(start, folder / "ground", TWO, [RED, BLUE]) as ground:
            self.recorded.append(ground.round(len(self.recorded) + 2, self._seconds))
            ground.close()
        ground.daemon.stop()
        # On a busy machine a longer round has as many operations.
        self._seconds = min(SECONDS * OFFERED_RATE / max(self.recorded[-1].figures["rate"], 1), MOST_SECONDS)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    return Rounds(lambda: tmp_path_factory.mktemp("recorded"))


def first(places):
    """The first one. There must be one, or the recording has no place for a violation."""
    for place in places:
        return place
    raise NoPlaceError("the recording has no such place")


class Planting:
    """A copy of a recording's histories, to be changed. The change goes to the first place that
    fits."""

    def __init__(self, recording):
        self.recording = recording
        self.reference, *self.histories = [History(history.name, history.view, [self._copy(stream) for stream in history.streams],
                                                   history.to_the_end) for history in recording.all()]

    @staticmethod
    def _copy(stream):
        messages = [Message(message.time, copy.deepcopy(message.body)) for message in stream.messages]
        return Stream(stream.request, stream.time, messages, stream.end)

    def done(self):
        return dataclasses.replace(self.recording, reference=self.reference, histories=self.histories)

    def history(self, name):
        return next(history for history in self.histories if history.name == name)

    def _streams(self, view):
        return (stream for history in self.histories if view(history.view) for stream in history.streams)

    def event(self, fits, in_snapshot=False, view=lambda view: True):
        """(stream, number of the message, place of the event in it); fits(event). The recording's
        reference has the event too."""
        def places():
            for stream in self._streams(view):
                place, last = 0, -1
                for number, _, event, snapshot in stream.told():
                    place, last = (place + 1 if number == last else 0), number
                    if snapshot == in_snapshot and event.revision <= self.recording.truth.last and fits(event):
                        yield stream, number, place

        return first(places())

    def message(self, fits, view=lambda view: True):
        """(stream, number); fits(stream, number), of a stream's messages behind its snapshot."""
        def places():
            for stream in self._streams(view):
                in_snapshot = False
                for number, message in enumerate(stream.messages):
                    in_snapshot = (in_snapshot or message.body.snapshot_begin)
                    if not in_snapshot and 0 < number < len(stream.messages) - 1 and fits(stream, number):
                        yield stream, number
                    in_snapshot = in_snapshot and not message.body.snapshot_end

        return first(places())

    def resumed(self, fits=lambda before, stream: True):
        """(history, number of a stream that was resumed); this stream and the one before it had
        messages, and fits(the one before it, this stream)."""
        return first((history, history.streams.index(stream)) for history in self.histories for chain in history.chains()
                     for before, stream in zip(chain, chain[1:])
                     if before.messages and stream.messages and not stream.messages[0].body.snapshot_begin and fits(before, stream))

    def known_change(self, field, view):
        """An update of a block whose present value of the field the subscriber had received."""
        return first(updated for history in self.histories if view(history.view) for chain in history.chains()
                     for updated in _known_changes(chain, field))


def _known_changes(chain, field):
    known = set()
    for body in (message.body for stream in chain for message in stream.messages):
        if body.snapshot_begin:
            known.clear()
        for event in body.events:
            if event.updated.HasField(field) and known.issuperset(bounds(event)):
                yield event.updated
            if event.HasField("stored") or event.updated.HasField(field):
                known.update(bounds(event))
            elif event.HasField("removed"):
                known.difference_update(bounds(event) or [place for place in known if place[0] == event.window_size])


def told_outside_snapshots(stream):
    return [event for _, _, event, in_snapshot in stream.told() if not in_snapshot]


def events_of(stream, number):
    return stream.messages[number].body.events


def has_events(least):
    return lambda stream, number: len({event.revision for event in events_of(stream, number)}) >= least


def everything(view):
    return view == EVERYTHING


# The planted violations. By broken guarantee: functions that change a Planting.

def two_events_change_places(plant):
    stream, number = plant.message(has_events(2))
    events = list(events_of(stream, number))
    del events_of(stream, number)[:]
    events_of(stream, number).extend(events[::-1])


def two_messages_change_places(plant):
    stream, number = plant.message(lambda stream, number: has_events(1)(stream, number) and has_events(1)(stream, number - 1))
    messages = stream.messages
    messages[number - 1].body, messages[number].body = messages[number].body, messages[number - 1].body


def an_event_is_outside_of_what_its_message_covers(plant):
    stream, number = plant.message(has_events(1))
    events_of(stream, number)[-1].revision = stream.messages[number].body.revision + 1


def an_event_is_told_as_of_a_snapshot(plant):
    stream, number, place = plant.event(lambda event: True)
    events_of(stream, number)[place].revision = 0


def an_event_happened_before_the_one_told_earlier(plant):
    stream, number = plant.message(has_events(2))
    events_of(stream, number)[-1].time.seconds -= 3600


def a_stream_begins_before_what_a_client_knew(plant):
    stream, known = first((stream, known) for stream in plant.history("late").streams
                          if stream.messages and (known := plant.recording.acknowledged_before(stream.time)))
    stream.messages[0].body.revision = known - 1


def an_event_is_told_twice_in_a_message(plant):
    stream, number, place = plant.event(lambda event: True)
    events_of(stream, number).append(events_of(stream, number)[place])


def an_event_is_told_again_after_a_resume(plant):
    history, number = plant.resumed(lambda before, stream: told_outside_snapshots(before))
    event = told_outside_snapshots(history.streams[number - 1])[0]
    history.streams[number].messages[-1].body.events.append(event)


def a_block_is_told_twice_in_a_snapshot(plant):
    stream, number, place = plant.event(lambda event: event.HasField("stored"), in_snapshot=True)
    events_of(stream, number).append(events_of(stream, number)[place])


def an_event_lacks_a_block(plant):
    stream, number, place = plant.event(lambda event: len(event.stored.blocks) > 1)
    del events_of(stream, number)[place].stored.blocks[-1]


def a_removal_lacks_a_block(plant):
    stream, number, place = plant.event(lambda event: len(event.removed.block_hashes) > 1)
    del events_of(stream, number)[place].removed.block_ids[-1], events_of(stream, number)[place].removed.block_hashes[-1]


def an_event_is_torn_between_two_messages(plant):
    stream, number, place = plant.event(lambda event: len(event.stored.blocks) > 1)
    whole = stream.messages[number]
    part = copy.deepcopy(whole.body)
    del part.events[:place], part.events[0].stored.blocks[0]
    part.previous_revision = part.events[0].revision
    del whole.body.events[place + 1:], whole.body.events[place].stored.blocks[1:]
    whole.body.revision = part.previous_revision
    stream.messages.insert(number + 1, Message(whole.time, part))


def an_event_is_left_out(plant):
    stream, number, place = plant.event(lambda event: True)
    del events_of(stream, number)[place]


def an_event_is_left_out_by_a_filter(plant):
    stream, number, place = plant.event(lambda event: True, view=lambda view: view.tiers is not None)
    revision = events_of(stream, number)[place].revision
    kept = [event for event in events_of(stream, number) if event.revision != revision]
    del events_of(stream, number)[:]
    events_of(stream, number).extend(kept)


def an_event_is_left_out_for_everybody(plant):
    stream, number, place = plant.event(lambda event: True)
    revision = events_of(stream, number)[place].revision
    for history in [plant.reference, *plant.histories]:
        for message in (message for stream in history.streams for message in stream.messages):
            kept = [event for event in message.body.events if event.revision != revision]
            del message.body.events[:]
            message.body.events.extend(kept)


def a_message_is_left_out(plant):
    stream, number = plant.message(has_events(1))
    del stream.messages[number]


def a_message_is_left_out_and_the_gap_is_closed(plant):
    stream, number = plant.message(has_events(1))
    stream.messages[number + 1].body.previous_revision = stream.messages[number].body.previous_revision
    del stream.messages[number]


def the_last_event_never_comes(plant):
    stream = plant.history("cut").streams[-1]
    stream.messages[:] = [message for message in stream.messages if message.body.revision < plant.recording.target]


def a_stream_is_ended_without_a_reason(plant):
    plant.history("late").streams[0].end = End(0, "UNAVAILABLE")


def a_stream_is_ended_that_the_log_had_not_passed(plant):
    stream = plant.history("late").streams[0]
    stream.end = End(0, "REVISION_COMPACTED", oldest=stream.messages[-1].body.revision, next=plant.recording.final + 1)


def a_snapshot_is_refused(plant):
    stream = plant.history("late").streams[0]
    stream.messages, stream.end = [], End(0, "REVISION_COMPACTED", oldest=5, next=9)


def a_resumed_stream_begins_too_far(plant):
    history, number = plant.resumed()
    first = history.streams[number].messages[0].body
    first.previous_revision += 1
    first.revision += 1


def a_resumed_stream_begins_with_a_snapshot(plant):
    history, number = plant.resumed()
    history.streams[number].messages[0].body.snapshot_begin = True


def a_resumed_stream_has_another_epoch(plant):
    history, number = plant.resumed()
    history.streams[number].messages[0].body.epoch ^= 1


def what_the_log_has_is_refused(plant):
    history, number = plant.resumed()
    stream = history.streams[number]
    stream.messages, stream.end = [], End(0, "REVISION_COMPACTED", oldest=stream.request.from_revision, next=plant.recording.final + 1)


def what_was_to_come_is_refused(plant):
    history, number = plant.resumed()
    history.streams[number].messages, history.streams[number].end = [], End(0, "REVISION_IN_FUTURE", oldest=1, next=2)


def what_was_refused_is_served(plant):
    history, number = plant.resumed()
    stream = history.streams[number]
    refused = Stream(stream.request, 0, [], End(stream.time - 1, "REVISION_COMPACTED", stream.request.from_revision + 1, 1 << 40))
    plant.histories.append(History("refused", EVERYTHING, [refused], to_the_end=False))


def a_mark_comes_too_early(plant):
    stream, number = plant.message(has_events(1))
    mark = copy.deepcopy(stream.messages[number].body)
    del mark.events[:]
    stream.messages.insert(number, Message(stream.messages[number].time, mark))


def a_mark_comes_too_early_before_a_resume(plant):
    history, number = plant.resumed(lambda before, stream: told_outside_snapshots(stream))
    told = [event.revision for event in told_outside_snapshots(history.streams[number])]
    before = history.streams[number - 1]
    mark = events_pb2.WatchResponse(epoch=1, previous_revision=before.messages[-1].body.revision, revision=max(told))
    before.messages.append(Message(0, mark))
    # The stream resumes behind the mark, and the event is reported nevertheless.
    request = events_pb2.WatchRequest(from_revision=max(told) + 1)
    history.streams[number] = Stream(request, 0, history.streams[number].messages, history.streams[number].end)


def a_mark_is_ahead_of_what_happened(plant):
    plant.history("cut").streams[-1].messages[-1].body.revision = plant.recording.final + 1


def a_mark_stands_for_what_was_not_told(plant):
    stream, number = plant.message(has_events(1))
    del events_of(stream, number)[:]


def the_old_priority_is_another(plant):
    stream, number, place = plant.event(lambda event: event.updated.HasField("priority"), view=everything)
    events_of(stream, number)[place].updated.priority.old_value += 200


def the_old_tier_is_another(plant):
    stream, number, place = plant.event(lambda event: event.updated.HasField("tier"), view=everything)
    change = events_of(stream, number)[place].updated.tier
    change.old_value, change.new_value = change.new_value, change.old_value


def the_old_copies_are_others(plant):
    change = plant.known_change("lower_tiers", view=everything).lower_tiers
    old, new = list(change.old_value), list(change.new_value)
    change.old_value[:], change.new_value[:] = new, old


def a_filtered_change_has_another_old_value(plant):
    change = plant.known_change("tier", view=lambda view: view.tiers is not None).tier
    change.old_value, change.new_value = change.new_value, change.old_value


def a_change_has_another_hash(plant):
    stream, number, place = plant.event(lambda event: event.HasField("updated"), view=everything)
    events_of(stream, number)[place].updated.block_hash ^= 1


def a_removal_has_another_hash(plant):
    stream, number, place = plant.event(lambda event: event.removed.block_hashes, view=everything)
    events_of(stream, number)[place].removed.block_hashes[0] ^= 1


def something_is_removed_that_was_not_there(plant):
    stream, number, place = plant.event(lambda event: event.removed.block_hashes, view=everything)
    events_of(stream, number)[place].removed.block_ids[0] += 1 << 20


def something_is_stored_that_was_there(plant):
    stream, number, place = plant.event(lambda event: event.HasField("stored"), view=everything)
    events_of(stream, number).insert(place, events_of(stream, number)[place])


def a_type_is_told_that_was_not_asked_for(plant):
    history = plant.history("from now, some types")
    unwanted = first(event for event in plant.recording.truth.events.values()
                     if TYPES[event.WhichOneof("event")] in ALL_TYPES - history.view.types)
    stream = first(stream for stream in history.streams if stream.messages)
    stream.messages[-1].body.events.append(unwanted)


def the_other_window_is_told(plant):
    history = plant.history("a window")
    unwanted = first(event for event in plant.recording.truth.events.values() if event.window_size not in history.view.windows)
    history.streams[0].messages[-1].body.events.append(unwanted)


def the_other_tenants_blocks_are_told(plant):
    history = plant.history("a tenant")
    truth = plant.recording.truth
    unwanted = first(event for revision, event in truth.events.items() if truth.owners[revision] not in (None, *history.view.tenants))
    history.streams[0].messages[-1].body.events.append(unwanted)


def blocks_of_the_other_tier_are_told(plant):
    (tier,) = plant.history("cut, a tier").view.tiers
    stream, number, place = plant.event(lambda event: event.HasField("stored"), in_snapshot=True, view=lambda view: view.tiers is not None)
    other = types_pb2.TIER_PRIMARY + types_pb2.TIER_SECOND - tier
    block = events_of(stream, number)[place].stored.blocks[0]
    block.tier = other
    del block.lower_tiers[:]


def something_is_told_that_did_not_happen(plant):
    stream, number, place = plant.event(lambda event: event.HasField("stored"))
    events_of(stream, number)[place].stored.blocks[0].priority += 1


PLANTED = {
    "ordered": [two_events_change_places, two_messages_change_places, an_event_is_outside_of_what_its_message_covers,
                an_event_is_told_as_of_a_snapshot, an_event_happened_before_the_one_told_earlier, a_stream_begins_before_what_a_client_knew],
    "unique": [an_event_is_told_twice_in_a_message, an_event_is_told_again_after_a_resume, a_block_is_told_twice_in_a_snapshot],
    "atomic": [an_event_lacks_a_block, a_removal_lacks_a_block, an_event_is_torn_between_two_messages],
    "reliable": [an_event_is_left_out, an_event_is_left_out_by_a_filter, an_event_is_left_out_for_everybody,
                 a_message_is_left_out, a_message_is_left_out_and_the_gap_is_closed,
                 the_last_event_never_comes, a_stream_is_ended_without_a_reason, a_stream_is_ended_that_the_log_had_not_passed,
                 a_snapshot_is_refused],
    "resumable": [a_resumed_stream_begins_too_far, a_resumed_stream_begins_with_a_snapshot, a_resumed_stream_has_another_epoch,
                  what_the_log_has_is_refused, what_was_to_come_is_refused, what_was_refused_is_served],
    "bookmarkable": [a_mark_comes_too_early, a_mark_comes_too_early_before_a_resume, a_mark_is_ahead_of_what_happened,
                     a_mark_stands_for_what_was_not_told],
    "previous value": [the_old_priority_is_another, the_old_tier_is_another, the_old_copies_are_others,
                       a_filtered_change_has_another_old_value,
                       a_change_has_another_hash, a_removal_has_another_hash, something_is_removed_that_was_not_there,
                       something_is_stored_that_was_there],
    "filter": [a_type_is_told_that_was_not_asked_for, the_other_window_is_told, the_other_tenants_blocks_are_told,
               blocks_of_the_other_tier_are_told, something_is_told_that_did_not_happen],
}


def planted(round_, change):
    plant = Planting(round_.recording)
    change(plant)
    return plant


def test_every_guarantee_has_plants():
    assert PLANTED.keys() == VALIDATORS.keys()


@pytest.mark.parametrize("guarantee, change", [(name, change) for name, changes in PLANTED.items() for change in changes],
                         ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_a_planted_violation_is_caught(rounds, guarantee, change):
    plant = rounds.find(lambda round_: planted(round_, change))
    assert list(VALIDATORS[guarantee](plant.done())), f"{guarantee} does not find this violation: {change.__name__.replace('_', ' ')}"


def forget_a_block(plant, name):
    """The subscriber was never told of a block that it knew."""
    history = plant.history(name)
    known = [blocks for revision, blocks in blocks_of(history) if blocks and revision <= plant.recording.truth.last]
    place = first(place for blocks in known[-1:] for place in blocks)
    for message in (message for stream in history.streams for message in stream.messages):
        for event in message.body.events:
            if event.HasField("stored") and event.window_size == place[0]:
                kept = [block for block in event.stored.blocks if block.block_id != place[1]]
                del event.stored.blocks[:]
                event.stored.blocks.extend(kept)
        kept = [event for event in message.body.events if not event.HasField("updated") or bounds(event) != [place]]
        del message.body.events[:]
        message.body.events.extend(kept)


@pytest.mark.parametrize("name", ["dump", "cut, a tier", "a window", "a tenant"])
def test_a_tree_that_lacks_a_block_is_caught(rounds, name):
    def without_a_block(round_):
        plant = Planting(round_.recording)
        forget_a_block(plant, name)
        return plant, round_.package

    plant, package = rounds.find(without_a_block)
    with pytest.raises(AssertionError):
        compare_trees(plant.done(), plant.history("dump"), package)


def test_another_tree_of_the_package_is_caught(rounds):
    round_, place = rounds.find(lambda round_: (round_, first(iter(round_.package))))
    for change in (lambda blocks, place: blocks.pop(place), lambda blocks, place: blocks[place].__setitem__(3, 7)):
        package = {place: list(entry) for place, entry in round_.package.items()}
        change(package, place)
        with pytest.raises(AssertionError, match="package"):
            compare_trees(round_.recording, round_.dump, package)


def check_that_the_log_passed_a_subscriber(round_):
    if all(stream.end.reason in OWN_DOING for history in round_.recording.all() for stream in history.streams):
        raise NoPlaceError("the log passed no subscriber")


# The last tests of the rounds examine all that the earlier ones needed.


def test_what_a_daemon_told_violates_nothing(rounds):
    rounds.find(check_that_the_log_passed_a_subscriber)
    for round_ in rounds.recorded:
        assert violations(round_.recording) == []


def test_all_trees_of_a_round_are_the_managers(rounds):
    # The reference, the dump, the package, and at least one tree of each subscriber that has all
    # types and began with a snapshot.
    # A round on a busy machine can have fewer subscribers like that.
    rounds.find(lambda _: None)
    assert max([round_.compare_trees() for round_ in rounds.recorded]) >= 8


def stored(block_id, tokens, parent=None, parent_hash=0):
    block = events_pb2.StoredBlock(block_id=block_id, tokens=tokens, tier=types_pb2.TIER_PRIMARY)
    block.block_hash = block_hash(parent_hash, block)
    event = events_pb2.Event(stored=events_pb2.StoredEvent(blocks=[block]))
    if parent is not None:
        event.stored.parent_block_id, event.stored.parent_hash = parent, parent_hash
    return event


def removed(event):
    (block,) = event.stored.blocks
    return events_pb2.Event(removed=events_pb2.RemovedEvent(reason=events_pb2.REMOVAL_REASON_EVICTED, block_ids=[block.block_id],
                                                            block_hashes=[block.block_hash]))


def test_in_a_sliding_window_alone_a_parent_may_leave_and_come_back():
    parent = stored(1, [1, 2])
    child = stored(2, [3, 4], 1, parent.stored.blocks[0].block_hash)
    sliding = ShadowTree(sliding=True)
    for event in (parent, child, removed(parent)):
        sliding.apply(event)
    with pytest.raises(AssertionError):
        copy.deepcopy(sliding).apply(stored(1, [9, 9]))  # Another block with the id of the child's parent.
    sliding.apply(parent)
    assert sliding.nodes.keys() == {1, 2}
    full = ShadowTree()
    full.apply(parent)
    full.apply(child)
    with pytest.raises(AssertionError):
        full.apply(removed(parent))
    with pytest.raises(AssertionError):
        ShadowTree().apply(child)
