package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
)

// One record: the ack says on whose disk it is.
func ExampleClient_Publish() {
	c, err := client.New(client.Config{Addresses: []string{"127.0.0.1:7400"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ack, err := c.Publish(ctx, &api.Record{
		ID: "order-4711", Topic: "orders", Key: "customer-7",
		Tags: []api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "order"}},
		Body: []byte(`{"book": 1}`),
	})
	switch code := api.CodeOf(err); {
	case err == nil:
		fmt.Println("stored in", ack.Region, "at", ack.Sequence)
	case code == api.OutcomeUnknown:
		fmt.Println("publish it again with the same id:", err)
	default:
		fmt.Println("nothing was stored:", err)
	}
}

// Many records: the outcomes come in any order.
func ExamplePublisher_Publish() {
	c, err := client.New(client.Config{Addresses: []string{"127.0.0.1:7400", "127.0.0.1:7410"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p := c.NewPublisher(client.Window{Records: 1_000})
	for n := range 10_000 {
		r := api.Record{
			ID: fmt.Sprintf("import-7/%d", n), Topic: "orders", Body: []byte("…"),
			Tags: []api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "order"}},
		}
		p.Publish(context.Background(), r, func(ack api.Ack, err error) {
			if err != nil {
				fmt.Println(r.ID, err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		fmt.Println(err)
	}
}

// Reading goes on from a position that the reader keeps with its own effect.
func ExampleClient_Read() {
	c, err := client.New(client.Config{Addresses: []string{"127.0.0.1:7400"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	var position string
	err = c.Read(context.Background(), &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error {
		for _, r := range b.GetRecords() {
			fmt.Println(r.GetRecord().GetId(), r.GetSequence())
		}
		for _, l := range b.GetLogs() {
			if l.GetStalenessKnown() {
				fmt.Printf("%s is %.1f s behind\n", l.GetLog().GetSlot(), l.GetStalenessSeconds())
			}
		}
		position = b.GetPosition() // keep it in the same transaction as the effect
		return nil
	})
	fmt.Println("ended at", position, err)
}
