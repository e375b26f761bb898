package engine

import "github.com/layover-run/layover/core/failpoint"

// Where a process may die between two durable steps, and around each effect.
var (
	fpAdmitBefore  = failpoint.New("engine.admit.before")
	fpAdmitAfter   = failpoint.New("engine.admit.after")
	fpSignalBefore = failpoint.New("engine.signal.before")
	fpSignalAfter  = failpoint.New("engine.signal.after")
	fpClaimBefore  = failpoint.New("engine.claim.before")
	fpClaimAfter   = failpoint.New("engine.claim.after")
	fpAppendBefore = failpoint.New("engine.append.before")
	fpAppendAfter  = failpoint.New("engine.append.after")
	fpParkBefore   = failpoint.New("engine.park.before")
	fpParkAfter    = failpoint.New("engine.park.after")
	fpFinishBefore = failpoint.New("engine.finish.before")
	fpFinishAfter  = failpoint.New("engine.finish.after")
	fpSendBefore   = failpoint.New("engine.send.before")
	fpSendAfter    = failpoint.New("engine.send.after")
	fpModelStart   = failpoint.New("engine.model.start")
	fpModelEnd     = failpoint.New("engine.model.end")
	fpToolStart    = failpoint.New("engine.tool.start")
	fpToolEnd      = failpoint.New("engine.tool.end")
	fpProbeStart   = failpoint.New("engine.probe.start")
	fpProbeEnd     = failpoint.New("engine.probe.end")
)
