"""What can be wrong with a submission: one file per check, cheap to dear; codes as in `node.verdicts.Check`."""
