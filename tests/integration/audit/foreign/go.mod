module foreign

go 1.19

require (
	github.com/transparency-dev/merkle v0.0.2
	golang.org/x/mod v0.12.0
)
