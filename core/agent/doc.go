// Package agent is what an author imports first: it turns typed functions into
// an agent the engine can run.
//
//	var refunds = agent.MustDefine[Request, Answer]("refund", agent.Config[Request]{
//		Description:  "Decides about refunds.",
//		Instructions: agent.Text[Request]("Look the order up, then refund it."),
//		Tools:        []*tool.Tool{lookUp, refund},
//	})
//
// A definition is immutable and knows no model; Bind joins the two.
//
// There are three ways to run one. Run, Stream and Start run it here and now,
// in memory, and keep nothing:
//
//	result, err := agent.Run[Answer](ctx, refunds.Bind(model), Request{Order: "A-1001"})
//
// embedded.Open runs agents durably inside a process of your own, from
// embedded.Config.Agents and Bindings. cli.Main(refunds) makes the program a
// command line with a server (dev), which gives definitions the demo model and
// runs bindings with their own. All three are one interpreter: what an agent
// does, and the events that tell of it, are the same.
//
// What differs is who waits for whom. In memory the consumer of a Stream holds
// the run up when it is slow and ends it when it leaves, an approval that is not
// answered within ApprovalWait ends the run suspended, and cancelling
// interrupts it. A durable run waits for nobody and is ended by an abort.
package agent
