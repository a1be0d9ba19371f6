"""Synthetic health records side by side: the tables and figures of IGAMT, soundly and as published.

What can be shared with the study `robust_private` is from there: records on disk, choices, tables,
page.

| file         | what                                                                          |
|--------------|-------------------------------------------------------------------------------|
| `fidelity`   | the seven measures by which contenders are judged, named beforehand           |
| `contenders` | who takes part                                                                |
| `known`      | settings of contenders on known records                                       |
| `sources`    | which records may be studied, and their training and held-out patients        |
| `cells`      | (contender, epsilon, seed), and what each is trained with                     |
| `measuring`  | draws stays from a release and compares them with held-out ones               |
| `results`    | figures over seeds; from the records alone                                    |
| `contest`    | who is better than whom on the seven measures, and how sure that is           |
| `published`  | the papers' own figures                                                       |
| `claims`     | what the papers say of their figures, and whether ours say so                 |
| `tables`     | the same as tables                                                            |
| `plots`      | the same as plots                                                             |
| `writing`    | all of that onto disk                                                         |
"""
