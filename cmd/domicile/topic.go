package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

func (a *app) topicCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "topic", Short: "Show topics, what they hold and what you can rely on; verify, delete and purge",
		Example: "  domicile topic show orders",
	}
	group.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "List the topics", Example: "  domicile topic ls", Args: arguments(0, 0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				r, err := a.topics(cmd.Context(), "")
				if err != nil {
					return err
				}
				if a.json() {
					views := []topicView{}
					for _, t := range r.GetTopics() {
						views = append(views, viewTopic(t, r.GetFrom()))
					}
					return a.printJSON(map[string]any{"topics": views})
				}
				_, err = io.WriteString(a.out, renderTopics(r))
				return err
			},
		},
		&cobra.Command{
			Use: "show TOPIC", Short: "Show one topic and its contract", Example: "  domicile topic show orders", Args: arguments(1, 1, "a TOPIC"),
			RunE: func(cmd *cobra.Command, args []string) error {
				r, err := a.topics(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if len(r.GetTopics()) != 1 {
					return &api.Error{Code: api.UnknownTopic, Op: "show topic", Topic: args[0], Hint: "domicile topic ls lists them"}
				}
				if a.json() {
					return a.printJSON(viewTopic(r.GetTopics()[0], r.GetFrom()))
				}
				_, err = io.WriteString(a.out, renderTopic(r.GetTopics()[0], r.GetFrom()))
				return err
			},
		},
		a.topicVerify(), a.topicDelete(), a.topicPurge(),
	)
	return group
}

func (a *app) topics(ctx context.Context, topic string) (*pb.TopicsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := c.Topics(ctx, topic)
	return r, asked(err)
}
