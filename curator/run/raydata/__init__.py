"""The plan's operators on Ray Data: `work` is what travels, `worker` what an actor does with it, `dataset`
asks Ray. Nothing here decides: Ray Data does, and the ledger of the run says what is finished."""
