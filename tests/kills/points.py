"""Where processes are killed: the table that the campaign goes through, role by role, from top to bottom."""

from typing import NamedTuple

BEFORE, AFTER = "before", "after"
PUSH = "ledger.following:Follower.push"  # a signed transaction leaves for the chain; it is in the journal by then


class Point(NamedTuple):
    """`role` is a command. The kill comes `when` the call of `target` whose arguments' text has `text`."""

    role: str
    where: str
    target: str  # module:class.method
    when: str
    text: str = ""

    @property
    def name(self) -> str:
        return f"{self.role}: {self.where}"


WORKER = (
    Point("join", "gas for the node signed, not sent", PUSH, BEFORE, "what='transfer'"),
    Point("join", "authorisation sent, not seen mined", PUSH, AFTER, "what='authorizeNode'"),
    Point("join", "tokens asked for, not seen mined", PUSH, AFTER, "what='faucet'"),
    Point("join", "tokens approved, not seen mined", PUSH, AFTER, "what='approve'"),
    Point("join", "stake signed, not sent", PUSH, BEFORE, "what='stake'"),
    Point("join", "stake sent, not seen mined", PUSH, AFTER, "what='stake'"),
    Point("join", "allocation signed, not sent", PUSH, BEFORE, "what='allocate'"),
    Point("join", "allocation sent, not seen mined", PUSH, AFTER, "what='allocate'"),
    Point("join", "endpoint sent, not seen mined", PUSH, AFTER, "what='setEndpoint'"),
    Point("join", "slot begun, no token generated", "node.roles.making:Maker.make", BEFORE),
    Point("join", "first tokens generated", "node.engines.scripted:ScriptedEngine._sample", AFTER),
    Point("join", "all generated, no file", "node.rollouts.store:RolloutStore.put", BEFORE),
    Point("join", "file written, not in its place", "pathlib:Path.replace", BEFORE, ".rollouts"),
    Point("join", "file in its place", "node.rollouts.store:RolloutStore.put", AFTER),
    Point("join", "commitment signed, not sent", PUSH, BEFORE, "what='submit'"),
    Point("join", "commitment sent, not seen mined", PUSH, AFTER, "what='submit'"),
    Point("join", "right after a restart, before what was sent is looked at",
          "ledger.transactions:Sender.resume", BEFORE),
    Point("join", "right after a restart, once what was sent is sent again",
          "ledger.transactions:Sender.resume", AFTER),
    Point("join", "commitment mined, file not served", "ledger.evm:EvmLedger.submit", AFTER),
    Point("join", "file served, not pushed", "node.roles.handover:Handover.start", BEFORE),
    Point("join", "file pushed to one receiver", "node.roles.handover:Handover._handed_over", AFTER),
)  # fmt: skip

CLAIM = (
    Point("join", "claim signed, not sent", PUSH, BEFORE, "what='claim'"),
    Point("join", "claim sent, not seen mined", PUSH, AFTER, "what='claim'"),
)

VALIDATOR = (
    Point("validate", "file taken in, not vouched for", "node.roles.intake:Intake.take", AFTER),
    Point("validate", "Have written, not told", "node.roles.casebook:Casebook.say", AFTER, "Have("),
    Point("validate", "replayed, nothing signed", "node.roles.audit:Auditor.deep", AFTER),
    Point("validate", "NoFault written, not told", "node.roles.casebook:Casebook.say", AFTER, "NoFault("),
    Point("validate", "list signed, no quorum yet", "node.roles.batching:Batcher.sign", AFTER),
    Point("validate", "quorum collected, nothing sent", "node.roles.batching:Batcher._keep", AFTER),
    Point("validate", "settlement signed, not sent", PUSH, BEFORE, "what='settle'"),
    Point("validate", "settlement sent, not seen mined", PUSH, AFTER, "what='settle'"),
    Point("validate", "settlement mined", "ledger.evm:EvmLedger.settle", AFTER),
)

ACCUSER = (
    Point("validate", "evidence written, no Fault", "node.roles.exhibits:Exhibits.write", AFTER),
    Point("validate", "Fault written, not reported", "node.roles.casebook:Casebook.say", AFTER, "Fault(run="),
    Point("validate", "report signed, not sent", PUSH, BEFORE, "what='report'"),
    Point("validate", "report sent, not seen mined", PUSH, AFTER, "what='report'"),
    Point("validate", "report mined", "ledger.evm:EvmLedger.report", AFTER),
    Point("validate", "conclusion signed, not sent", PUSH, BEFORE, "what='conclude'"),
    Point("validate", "conclusion sent, not seen mined", PUSH, AFTER, "what='conclude'"),
    Point("validate", "conclusion mined", "ledger.evm:EvmLedger.conclude", AFTER),
)

FIRST_VERSION = (
    Point("train", "version 0 signed, not sent", PUSH, BEFORE, "what='publishCheckpoint'"),
    Point("train", "version 0 sent, not seen mined", PUSH, AFTER, "what='publishCheckpoint'"),
)

FIRST_STEP = (
    Point("train", "step made, nothing on disk", "node.training.step:Learner.step", AFTER),
    Point("train", "weights written, no state", "node.training.step:Learner.export", AFTER),
    Point("train", "state half written", "node.training.checkpoint:_save_tensors", AFTER),
    Point("train", "state written", "node.training.step:Learner.save_state", AFTER),
    Point("train", "manifest written, weights not in their place", "node.shards.layout:Layout.save_manifest", AFTER),
    Point("train", "version 1 served, not signed", "node.shards.store:CheckpointStore.add", AFTER, "export"),
    Point("train", "version 1 signed, not sent", PUSH, BEFORE, "what='publishCheckpoint'"),
    Point("train", "version 1 sent, not seen mined", PUSH, AFTER, "what='publishCheckpoint'"),
)

LAST_STEP = (
    Point("train", "version 2 mined, not read", "ledger.evm:EvmLedger.publish_checkpoint", AFTER),
    Point("train", "the run's end signed, not sent", PUSH, BEFORE, "what='endRun'"),
    Point("train", "the run's end sent, not seen mined", PUSH, AFTER, "what='endRun'"),
)

RELAY = (Point("relay", "chunk written, checkpoint not whole", "node.shards.partial:_write_one", AFTER),)

ALL = (*WORKER, *CLAIM, *VALIDATOR, *ACCUSER, *FIRST_VERSION, *FIRST_STEP, *LAST_STEP, *RELAY)
