"""Loaded by a Python process of a test: another host, whose clock is ahead or behind."""

import datetime
import os
import socket
import time

AHEAD = float(os.environ["CLOCK_AHEAD_SECONDS"])
_time, _time_ns, _now = time.time, time.time_ns, datetime.datetime.now


class ShiftedTime(datetime.datetime):
    """The time by the other host's clock."""

    @classmethod
    def now(cls, tz=None):
        return _now(tz) + datetime.timedelta(seconds=AHEAD)


datetime.datetime = ShiftedTime
time.time = lambda: _time() + AHEAD
time.time_ns = lambda: _time_ns() + int(AHEAD * 1e9)
socket.gethostname = lambda: "another-host"
