package low

import _ "example.com/small/high"

func helper() {}
