"""Measure a drafting method against autoregressive decoding.

    python run.py method=recap model=tiny_qwen25vl bench=tiny_chartqa
    python run.py study=suffix model=tiny_qwen25vl

Running the same command again resumes it. The last line printed is the path of the run's summary.
"""

from __future__ import annotations

import os
import sys

# Hydra then raises its errors as they are, and `main` words them for the user.
os.environ["HYDRA_FULL_ERROR"] = "1"

try:
    import hydra
except ImportError:
    sys.exit("Error: packages are missing. Run `make setup`, then `source .venv/bin/activate`.")
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments import compose
from experiments.errors import UserError
from experiments.launch import launch

failures: list[UserError] = []


@hydra.main(version_base="1.3", config_path=str(compose.CONF), config_name="config")
def run(cfg: DictConfig) -> None:
    """Carry out one run or all of a study's; in a sweep a failed one does not stop the others."""
    settings = HydraConfig.get()
    failures.extend(launch(cfg, settings.overrides.task))
    if failures and settings.runtime.choices["hydra/launcher"] != "basic":
        raise failures[-1]  # this is a job of a cluster's, whose command waits elsewhere


def main() -> int:
    """Run; errors of the user's own are one sentence and exit status 2."""
    try:
        run()
    except UserError as error:  # a cluster's launcher hands on what a job raised
        print(f"Error in a job: {error}", file=sys.stderr)
        return 2
    except (HydraException, OmegaConfBaseException) as error:
        print(f"Error: {compose.explain(error, sys.argv[1:])}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: run the same command again to resume.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 2 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
