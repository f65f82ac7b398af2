-- Facts are found by any part of a word in scripts without spaces, and by emoji. How a text is split stands in
-- holdfast.model.words, so the program that applies this writes the words of all facts anew, in the same transaction.
LOCK TABLE {schema}.facts IN SHARE ROW EXCLUSIVE MODE;
