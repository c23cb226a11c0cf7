import torch

from distillkit.student.model import pull_left


def test_the_chosen_tokens_are_pulled_to_the_front_in_their_order():
    ids = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4], [9, 9, 9, 9]])
    chosen = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]]).bool()
    found, lengths = pull_left(ids, chosen)
    assert lengths.tolist() == [2, 3, 0]
    assert found[0, :2].tolist() == [6, 8]
    assert found[1, :3].tolist() == [1, 2, 3]
    assert found.shape == (3, 3)
    whole, lengths = pull_left(ids, chosen, cut=False)
    assert torch.equal(whole[:, :3], found)
    assert (whole.shape, lengths.tolist()) == ((3, 4), [2, 3, 0])


def test_a_batch_of_empty_texts_is_one_column_of_padding():
    found, lengths = pull_left(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 0).bool())
    assert found.tolist() == [[0], [0]]
    assert lengths.tolist() == [0, 0]
