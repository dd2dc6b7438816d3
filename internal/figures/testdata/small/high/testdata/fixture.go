package fixture

func LeftOut() {}
