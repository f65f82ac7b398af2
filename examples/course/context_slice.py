"""Chapter 11, "Filtering by Relevance": the part of a large state that the model sees for the current step."""

from holdfast import AgentState, ArtifactRef, KnownFact, filter_relevant_state

STATE = AgentState(
    goal="Deploy service X to staging",
    plan=("Check current status", "Collect config", "Apply changes"),
    known_facts=tuple(KnownFact(key=f"probe {n}", value=f"answered in {n} ms", source="curl") for n in range(1, 101)),
    open_questions=("Which namespace should we deploy to?",),
    artifacts=(
        ArtifactRef(artifact_id="log_1", type="logs", summary="nginx log", bytes=48_231, step="Check current status"),
        ArtifactRef(artifact_id="cfg_1", type="config", summary="values.yaml", bytes=900, step="Collect config"),
    ),
)


def main() -> None:
    piece = filter_relevant_state(STATE, "Collect config", max_bytes=300, excerpts={"cfg_1": "replicas: 3"})
    print(piece.render())
    print(f"--- {len(piece.artifacts)} of {len(STATE.artifacts)} artifacts,", end=" ")
    print(f"{len(piece.facts)} of {len(STATE.known_facts)} facts; the freshest is {piece.facts[0].key!r}")


if __name__ == "__main__":
    main()
