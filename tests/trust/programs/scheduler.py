"""A worker's timetable in a hurry: its clock runs through days, and not always forward."""

from __future__ import annotations

import random
import sys

from penstock import App
from penstock.schedules.timetable import Timetable
from penstock.testing.clock import Clock

url, start, end, seed = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
clock = Clock(start)
app = App(url, clock=clock)
timetable = Timetable(app.broker, clock, app.schedules.declared)
print("begun", flush=True)
while clock.now() < end:
    step = random.uniform(0, 2400)
    clock.advance(seconds=step)
    if random.random() < 0.2:
        clock.jump(-random.uniform(0, 7200))
    timetable.turn()
print("done", flush=True)
