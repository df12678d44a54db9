def test_x(localnet):
    print(localnet.endpoint, localnet.alice)
