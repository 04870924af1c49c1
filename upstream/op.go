package upstream

import "slices"

// Op is an operation of the public API.
type Op string

// The operations.
const (
	ChatCompletion Op = "chat"         // POST /v1/chat/completions
	Messages       Op = "messages"     // POST /v1/messages
	CountTokens    Op = "count_tokens" // POST /v1/messages/count_tokens
	Responses      Op = "responses"    // POST /v1/responses
	CountInput     Op = "input_tokens" // POST /v1/responses/input_tokens
	GenerateImage  Op = "image"        // POST /v1/images/generations
	EditImage      Op = "edit"         // POST /v1/images/edits
	SubmitVideo    Op = "video"        // POST /v1/videos/generations
	PollVideo      Op = "video_poll"   // what became of a submission: Call.TaskID
	Embeddings     Op = "embeddings"   // POST /v1/embeddings
	Speech         Op = "speech"       // POST /v1/audio/speech
	Moderations    Op = "moderations"  // POST /v1/moderations

	// Rerank is POST /v1/rerank. Whatever dialect the caller speaks, a driver gets
	//
	//	{"model":…, "query":"…", "documents":["…"], "top_n":3, "return_documents":false, …}
	//
	// where documents are strings, none of them empty, and top_n is only there if the
	// caller wants fewer results than there are documents. What the caller gave besides
	// (max_tokens_per_doc, truncation and the like) follows as it came: a driver renames
	// or drops it. It answers
	//
	//	{"id":"…", "model":"…", "results":[{"index":0, "relevance_score":0.5}],
	//	 "meta":{"billed_units":{"search_units":1}}, "usage":{"total_tokens":12}}
	//
	// Only results are needed: all documents, or top_n of them, in any order. The gateway
	// sorts them, adds documents, and gives the caller the form of its dialect. Counts that
	// are not there are not reported by the vendor, and are estimated.
	Rerank Op = "rerank"
)

// The operations on a response that a vendor keeps, Call.TaskID, which only the channel that
// made it is asked, by its name.
const (
	ShowResponse   Op = "response_show"   // GET /v1/responses/{id}
	DeleteResponse Op = "response_delete" // DELETE /v1/responses/{id}
	ListInput      Op = "response_input"  // GET /v1/responses/{id}/input_items, with Call.Query
)

// ops are the operations that a model serves, in the order of the API's documentation. Each
// row has what the router and the readers of vendors' lists know of it.
var ops = [...]struct {
	op     Op
	repeat bool     // see Repeatable
	words  []string // what vendors call a model that is for it
}{
	{op: ChatCompletion, repeat: true, words: []string{"chat", "llm", "vlm", "generateContent"}},
	{op: Messages, repeat: true},
	{op: CountTokens, repeat: true},
	{op: Responses, repeat: true},
	{op: CountInput, repeat: true},
	{op: GenerateImage, words: []string{"image"}},
	{op: EditImage},
	{op: SubmitVideo},
	{op: PollVideo},
	{op: Embeddings, repeat: true, words: []string{"embedding", "embeddings", "embed", "embedContent"}},
	{op: Speech},
	{op: Rerank, repeat: true, words: []string{"rerank", "reranker"}},
	{op: Moderations, repeat: true},
}

// Ops returns every operation that a model serves, in the order of the API's documentation.
func Ops() []Op {
	all := make([]Op, len(ops))
	for i := range ops {
		all[i] = ops[i].op
	}
	return all
}

// Repeatable reports whether a failed attempt is repeated on another channel even if its
// vendor may bill it: two answers cost little.
func (op Op) Repeatable() bool {
	for i := range ops {
		if ops[i].op == op {
			return ops[i].repeat
		}
	}
	return false
}

// OpCalled is the operation for which a model is by a word of its vendor's list; empty for
// an unknown word.
func OpCalled(word string) Op {
	for i := range ops {
		if slices.Contains(ops[i].words, word) {
			return ops[i].op
		}
	}
	return ""
}
