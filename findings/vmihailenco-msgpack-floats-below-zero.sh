#!/bin/sh
# github.com/vmihailenco/msgpack v5.4.1 (Go): unsigned integers of 64 bits in a field that is a float.
#
# Guess: 2^64 - 1 in a float64 is 1.8e19, which a float64 holds well, or an error.
# Seen:  it is -1, without an error, and 2^63 is -9.2e18: integers go into floats by way of int64. Into an int64 they wrap
#        as well; into uint64 and interface{} they are right. Nanoseconds and counters stay below 2^63, block hashes do not.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GOMODCACHE="$dir/modules" GOFLAGS="-modcacherw -mod=mod" GOTOOLCHAIN=local
cd "$dir"
cat > go.mod <<'MODULE'
module finding

go 1.21

require github.com/vmihailenco/msgpack/v5 v5.4.1
MODULE
cat > main.go <<'GO'
package main

import (
	"fmt"
	"runtime/debug"

	"github.com/vmihailenco/msgpack/v5"
)

func main() {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/vmihailenco/msgpack/v5" {
			fmt.Println(module.Path, module.Version)
		}
	}
	for _, wire := range [][]byte{
		{0xcf, 255, 255, 255, 255, 255, 255, 255, 255},
		{0xcf, 128, 0, 0, 0, 0, 0, 0, 0},
	} {
		var float float64
		var signed int64
		var unsigned uint64
		var any interface{}
		errors := []error{
			msgpack.Unmarshal(wire, &float), msgpack.Unmarshal(wire, &signed),
			msgpack.Unmarshal(wire, &unsigned), msgpack.Unmarshal(wire, &any),
		}
		fmt.Println(float, signed, unsigned, any, errors)
	}
}
GO
go mod tidy 2> /dev/null
go run . | tee seen
cat > expected <<'EXPECTED'
github.com/vmihailenco/msgpack/v5 v5.4.1
-1 -1 18446744073709551615 18446744073709551615 [<nil> <nil> <nil> <nil>]
-9.223372036854776e+18 -9223372036854775808 9223372036854775808 9223372036854775808 [<nil> <nil> <nil> <nil>]
EXPECTED
diff expected seen && echo "as described"
