module dormouse.example/echo

go 1.21
