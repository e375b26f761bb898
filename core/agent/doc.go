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
// There are two ways to run one. cli.Main(refunds) makes the program a command
// line with a server (dev), which gives definitions the demo model and runs
// bindings with their own. embedded.Open runs agents inside a process of your
// own, from embedded.Config.Agents and Bindings. To try one without either,
// play it against a script: see the example of Define.
package agent
