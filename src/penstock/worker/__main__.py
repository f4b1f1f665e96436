"""The processes that a worker starts: `python -m penstock.worker child|process|keep|run ...`.

Not for people: they use `penstock worker`. A module of its own, because Python warns when a module
is run that its package has imported already.
"""

from __future__ import annotations

import sys

import msgspec

from penstock.worker import child, job_process

if __name__ == "__main__":
    if sys.argv[1] == "child":
        child.main(msgspec.json.decode(sys.argv[2], type=child.ChildConfig))
    elif sys.argv[1] == "keep":
        from penstock.worker.detached import keeper

        sys.exit(keeper.main(msgspec.json.decode(sys.argv[2], type=keeper.KeeperConfig)))
    elif sys.argv[1] == "run":
        from penstock.worker.detached import run_process

        run_process.main(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    else:
        number, parent, words = map(int, sys.argv[2:5])
        job_process.main(number, parent, words, *sys.argv[5:])
