"""When a cron line ticks in a time zone: cronsim on the wall, and the time zone database.

A day on which the clocks change is as Debian's cron has it: a line with a fixed minute and hour
ticks once, right behind the gap or the first time round; a line with a star in one of them ticks
whenever the clock on the wall shows its time. cronsim has such rules as well, but for changes of a
whole hour only: it passes over ticks where clocks change by half of one.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import SCHEDULE_MISSED_COUNTED_MAX, SCHEDULE_ZONE_CHARACTERS_MAX
from goqueue.base.units import DAY_MS
from goqueue.core.recurring.spec import ScheduleSpec
from goqueue.core.recurring.ticks import Calendar, Counting, IntervalCalendar, Recent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]+", re.ASCII)
_OTHER_CLOCKS: Final = ("posix/", "right/", "localtime", "posixrules", "Factory")
"""Zones of some machines that are copies, count leap seconds, or differ by machine."""
_COUNTED_AT_ONCE: Final = 32
"""So many ticks are looked at in a row: about a millisecond."""
_MOMENT_MS_MAX: Final = 8_000 * 366 * DAY_MS
"""Behind this the calendar of Python ends; about the year 9985."""


class CronCalendar:
    """The ticks of a cron line."""

    def __init__(self, cron: str, zone: str) -> None:
        self._cron = cron
        self._zone = find_zone(zone)
        self._has_star = any(field.startswith("*") for field in cron.split()[:2])
        try:
            CronSim(cron, _EPOCH)
        except CronSimError as error:
            reason = str(error).lower()
            if "day-of-month" in reason:
                reason += ", or no day that there is"
            raise InvalidRequestError(f"cron: {cron!a}: {reason}") from error

    def after(self, moment_ms: int) -> int | None:
        """Return the first tick after a moment, or None if there is none for a lifetime."""
        if moment_ms > _MOMENT_MS_MAX:
            return None
        moment = _EPOCH + max(moment_ms, 0) * _MILLISECOND
        try:
            tick = self._star_after(moment) if self._has_star else self._fixed_after(moment)
        except OverflowError:
            return None
        return None if tick is None else (tick - _EPOCH) // _MILLISECOND

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """Yield the times on the wall after one of them; zones are no matter of cronsim's here."""
        return iter(CronSim(self._cron, wall))

    def _fixed_after(self, moment: datetime) -> datetime | None:
        """Return the next tick of a line that names minute and hour: each of its times once."""
        for wall in self._walls(moment.astimezone(self._zone).replace(tzinfo=None)):
            tick = self._first_at(wall)
            # Begun within the hour that comes twice, a time may lie in the first round of it.
            if tick > moment:
                return tick
        return None

    def _first_at(self, wall: datetime) -> datetime:
        """Return when the wall first shows a time, or the first minute behind a gap it lies in."""
        while True:
            tick = wall.replace(tzinfo=self._zone).astimezone(UTC)
            if tick.astimezone(self._zone).replace(tzinfo=None) == wall:
                return tick
            wall += _MINUTE

    def _star_after(self, moment: datetime) -> datetime | None:
        """Return the next moment at which the wall shows a time of the line.

        Between two changes of the zone the wall is a constant distance from UTC.
        """
        while True:
            offset = self._offset(moment + _MILLISECOND)
            wall = next(self._walls((moment + offset).replace(tzinfo=None)), None)
            if wall is None:
                return None
            tick = wall.replace(tzinfo=UTC) - offset
            near = min(tick, moment + _DAY)
            if self._offset(near) != offset:
                # Behind the change the same distance does not hold: look again from there.
                moment = self._change(moment, near) - _MILLISECOND
            elif near == tick:
                return tick
            else:
                moment = tick - _DAY

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    def _change(self, before: datetime, behind: datetime) -> datetime:
        """Return the millisecond at which the zone changes, between two moments."""
        before += _MILLISECOND
        offset = self._offset(before)
        while behind - before > _MILLISECOND:
            middle = before + (behind - before) // 2
            middle = middle.replace(microsecond=middle.microsecond // 1_000 * 1_000)
            before, behind = (
                (middle, behind) if self._offset(middle) == offset else (before, middle)
            )
        return behind

    def recent(self, *, after_ms: int, until_ms: int, count_max: int) -> Counting[Recent]:
        """Return the last ticks after one moment and up to another: looked at from their end."""
        held: list[int] = []
        earlier = 0
        first_ms = self.after(after_ms)
        if first_ms is None or first_ms > until_ms:
            return Recent(held, earlier)
        for count, tick_ms in enumerate(self._ticks_back(until_ms), 1):
            if tick_ms <= after_ms:
                break
            if len(held) < count_max:
                held.append(tick_ms)
            else:
                earlier += 1
            if tick_ms == first_ms or earlier == SCHEDULE_MISSED_COUNTED_MAX:
                break
            if count % _COUNTED_AT_ONCE == 0:
                yield
        held.reverse()
        return Recent(held, earlier)

    def _ticks_back(self, until_ms: int) -> Iterator[int]:
        """Yield ticks up to a moment, the last one first."""
        moment = _EPOCH + until_ms * _MILLISECOND
        for tick in self._star_back(moment) if self._has_star else self._fixed_back(moment):
            yield (tick - _EPOCH) // _MILLISECOND

    def _walls_back(self, wall: datetime) -> Iterator[datetime]:
        """Yield the times on the wall up to one of them, the last one first."""
        return iter(CronSim(self._cron, wall + _MILLISECOND, reverse=True))

    def _fixed_back(self, moment: datetime) -> Iterator[datetime]:
        wall = moment.astimezone(self._zone).replace(tzinfo=None)
        if self._offset(moment - _DAY) != self._offset(moment + _DAY):
            # In the second round of an hour, later times on the wall were there already.
            wall += _DAY
        last = None
        for one in self._walls_back(wall):
            tick = self._first_at(one)
            # Times within a gap all tick right behind it.
            if tick <= moment and tick != last:
                yield tick
                last = tick

    def _star_back(self, moment: datetime) -> Iterator[datetime]:
        while True:
            offset = self._offset(moment)
            for wall in self._walls_back((moment + offset).replace(tzinfo=None)):
                tick = wall.replace(tzinfo=UTC) - offset
                near = max(tick, moment - _DAY)
                if near != tick or self._offset(near) != offset:
                    break
                yield tick
                moment = tick
            else:
                return
            if self._offset(near) != offset:
                # Before the change the same distance does not hold: look again from there.
                moment = self._change(near - _MILLISECOND, moment) - _MILLISECOND
            else:
                moment = tick + _DAY


def calendar_of(spec: ScheduleSpec, *, anchor_ms: int) -> Calendar:
    """Return the calendar of a schedule, or raise naming the field at fault."""
    if spec.cron:
        return CronCalendar(spec.cron, spec.zone)
    return IntervalCalendar(spec.every_ms, anchor_ms=anchor_ms)


def check_calendar(spec: ScheduleSpec, *, now_ms: int) -> None:
    """Refuse a schedule that would never tick, or a zone that is not known."""
    find_zone(spec.zone)
    if calendar_of(spec, anchor_ms=now_ms).after(now_ms) is None:
        raise InvalidRequestError(f"cron: {spec.cron!a} never comes")


@lru_cache(maxsize=1_024)
def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name in the IANA database, or raise."""
    if name == "UTC":
        return UTC
    if not name or len(name) > SCHEDULE_ZONE_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"tz: {len(name)} characters; 1 to {SCHEDULE_ZONE_CHARACTERS_MAX} are allowed"
        )
    if _ZONE.fullmatch(name) is None or name.startswith(_OTHER_CLOCKS):
        raise _unknown_zone(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _unknown_zone(name) from error


def _unknown_zone(name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f'tz: {name!a} is not known; write for example "Europe/Berlin" or "UTC"'
    )
