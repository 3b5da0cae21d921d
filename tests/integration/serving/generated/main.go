package main

import (
	"context"
	"encoding/json"
	"os"

	"generated/api"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx, gate := context.Background(), os.Args[2]
	client := must(api.NewClientWithResponses(os.Args[1]))
	decide := func(batch string, score float32) *api.ActionsV1 {
		answers := api.ResponsesV1_Responses{}
		must(0, answers.FromResponsesV1Responses0([]api.ResponseV1{
			{Id: "a", Text: new("Here."), Score: &score}, {Id: "b", Text: new("There."), Score: new(float32(0.1))},
		}))
		body := api.ResponsesV1{BatchId: &batch, Prompt: "Where?", Responses: answers}
		return must(client.DecideWithResponse(ctx, gate, nil, body)).JSON200
	}
	ships, held := decide("go-1", 0.9), decide("go-2", 0.2)
	found := must(client.FindDecisionWithResponse(ctx, gate, ships.BatchId, nil)).JSON200
	severities := api.LabelJSONRequestBody{}
	must(0, severities.FromLabelsV1(api.LabelsV1{
		BatchId: ships.BatchId, ResponseId: "a", Severity: new(float32(0.5)), Kind: "human", Labeller: "ana",
	}))
	label := must(client.LabelWithResponse(ctx, gate, nil, severities)).JSON200
	shown := must(client.ShowGateWithResponse(ctx, gate)).JSON200
	refused := must(client.ShowGateWithResponse(ctx, "nobody")).ApplicationproblemJSON4XX
	chat := api.ChatRequest{Model: "chatty", Messages: []map[string]any{{"role": "user", "content": "Where?"}}}
	said := must(client.CompleteWithResponse(ctx, nil, chat)).JSON200
	json.NewEncoder(os.Stdout).Encode([]any{
		ships.Action, ships.Selected, held.Action, found.Action, label.Recorded, shown.Gate, refused.Code, said.Id != "",
	})
}
