"""How nodes talk to each other: rollout files, signed verdicts, batches and evidence over HTTP."""
