// Verify full receipts up to a signed note, consistency proofs, and signatures of policies and labels, with code of others: Go's
// checksum database, certificate transparency, and DSSE by the secure systems lab.
//
// Reads one JSON object from standard input and says on standard output how much it has verified; the first proof that is no
// proof ends it with status 1.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type Receipt struct {
	Log              []any
	Index, Size      int64
	Data, Leaf, Root string
	Proof            []string
	Head             struct {
		Index int64
		Data  string
		Proof []string
	}
	Checkpoint string
}

type Head struct {
	Partitions []struct {
		LogId     string `json:"log_id"`
		Topic     string
		Partition float64
		Size      int64
		Root      string
	}
}

type Consistency struct {
	From, To     int64
	Older, Newer string
	Proof        []string
}

// key is the public key of who signed an envelope.
type key ed25519.PublicKey

func (k key) Verify(_ context.Context, data, signature []byte) error {
	if !ed25519.Verify(ed25519.PublicKey(k), data, signature) {
		return fmt.Errorf("the signature is not good")
	}
	return nil
}

func (key) KeyID() (string, error) { return "", nil }

func (k key) Public() crypto.PublicKey { return ed25519.PublicKey(k) }

func check(err error, what string, args ...any) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", fmt.Sprintf(what, args...), err)
		os.Exit(1)
	}
}

func raw(text string) []byte {
	data, err := hex.DecodeString(text)
	check(err, "%q is no hash", text)
	return data
}

func hash(text string) (h tlog.Hash) {
	if copy(h[:], raw(text)) != tlog.HashSize {
		check(fmt.Errorf("it is too short"), "%q", text)
	}
	return h
}

// signed opens a signed note, and returns the size and the root that it says.
func signed(text string, keys note.Verifiers) (size int64, root tlog.Hash) {
	opened, err := note.Open([]byte(text), keys)
	check(err, "the checkpoint")
	lines := strings.Split(opened.Text, "\n")
	size, err = strconv.ParseInt(lines[1], 10, 64)
	check(err, "the checkpoint's size")
	root, err = tlog.ParseHash(lines[2])
	check(err, "the checkpoint's root")
	return size, root
}

func included(data []byte, index int64, nodes []string, size int64, root tlog.Hash) {
	record := tlog.RecordHash(data)
	var hashes tlog.RecordProof
	var others [][]byte
	for _, text := range nodes {
		hashes, others = append(hashes, hash(text)), append(others, raw(text))
	}
	check(tlog.CheckRecord(hashes, size, root, index, record), "sumdb: leaf %d of %d", index, size)
	err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(index), uint64(size), record[:], others, root[:])
	check(err, "merkle: leaf %d of %d", index, size)
}

// folder reads the tiles of https://c2sp.org/tlog-tiles.
type folder string

func (folder) Height() int { return 8 }

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) ReadTiles(tiles []tlog.Tile) (found [][]byte, err error) {
	for _, tile := range tiles {
		data, err := os.ReadFile(string(f) + "/" + strings.Replace(tile.Path(), "tile/8/", "tile/", 1))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

// tiled proves each leaf of a log to be in it by its tiles alone, and returns how many there are.
func tiled(f folder, keys note.Verifiers) int64 {
	text, err := os.ReadFile(string(f) + "/checkpoint")
	check(err, "the checkpoint")
	size, root := signed(string(text), keys)
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, f)
	var bundle []byte
	for index := int64(0); index < size; index++ {
		if index%256 == 0 {
			tile := tlog.Tile{H: 8, L: -1, N: index / 256, W: int(min(256, size-index))}
			bundle, err = os.ReadFile(string(f) + "/" + strings.Replace(tile.Path(), "tile/8/data/", "tile/entries/", 1))
			check(err, "the bundle of leaf %d", index)
		}
		length := int(bundle[0])<<8 | int(bundle[1])
		record := tlog.RecordHash(bundle[2 : 2+length])
		bundle = bundle[2+length:]
		path, err := tlog.ProveRecord(size, index, reader)
		check(err, "tiles: leaf %d", index)
		check(tlog.CheckRecord(path, size, root, index, record), "tiles: leaf %d of %d", index, size)
	}
	return size
}

func min(one, other int64) int64 {
	if one < other {
		return one
	}
	return other
}

func main() {
	var given struct {
		Tiles       string
		Keys        []string
		Receipts    []Receipt
		Consistency []Consistency
		Envelopes   []struct {
			Key      []byte
			Envelope dsse.Envelope
		}
	}
	check(json.NewDecoder(os.Stdin).Decode(&given), "standard input")
	var verifiers []note.Verifier
	for _, text := range given.Keys {
		verifier, err := note.NewVerifier(text)
		check(err, "%s", text)
		verifiers = append(verifiers, verifier)
	}
	keys := note.VerifierList(verifiers...)
	if given.Tiles != "" {
		fmt.Printf("%d leaves in tiles, ", tiled(folder(given.Tiles), keys))
	}
	for _, one := range given.Receipts {
		size, root := signed(one.Checkpoint, keys)
		included([]byte(one.Head.Data), one.Head.Index, one.Head.Proof, size, root)
		var head Head
		check(json.Unmarshal([]byte(one.Head.Data), &head), "the head")
		found := false
		for _, log := range head.Partitions {
			place := []any{log.LogId, log.Topic, log.Partition}
			found = found || reflect.DeepEqual(place, one.Log) && log.Size == one.Size && log.Root == one.Root
		}
		if record := tlog.RecordHash([]byte(one.Data)); !found || !bytes.Equal(record[:], raw(one.Leaf)) {
			check(fmt.Errorf("the head has another one, or it is not the hash of its data"), "leaf %d", one.Index)
		}
		included([]byte(one.Data), one.Index, one.Proof, one.Size, hash(one.Root))
	}
	for _, one := range given.Consistency {
		var hashes tlog.TreeProof
		var others [][]byte
		for _, text := range one.Proof {
			hashes, others = append(hashes, hash(text)), append(others, raw(text))
		}
		check(tlog.CheckTree(hashes, one.To, hash(one.Newer), one.From, hash(one.Older)), "sumdb: %d to %d", one.From, one.To)
		err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(one.From), uint64(one.To), others, raw(one.Older), raw(one.Newer))
		check(err, "merkle: %d to %d", one.From, one.To)
	}
	for _, one := range given.Envelopes {
		verifier, err := dsse.NewEnvelopeVerifier(key(one.Key))
		check(err, "the key")
		_, err = verifier.Verify(context.Background(), &one.Envelope)
		check(err, "the envelope of %s", one.Envelope.PayloadType)
		fmt.Printf("%s, ", one.Envelope.PayloadType)
	}
	fmt.Printf("%d receipts, %d consistency proofs\n", len(given.Receipts), len(given.Consistency))
}
