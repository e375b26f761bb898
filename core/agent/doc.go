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
package agent
