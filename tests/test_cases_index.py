"""Where each field case that the suite must stand up to is proved: case -> tests, by name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

PROVED: dict[str, tuple[str, ...]] = {
    # Noise is never named a bottleneck.
    "C03": (
        "test_stats.py::test_c03_softmax_is_clear_and_the_copy_is_within_noise",
        "test_stats.py::test_the_order_of_the_rows_changes_no_effect",
    ),
    # Dense peaks, checked against SMs x clock x rate.
    "C04": (
        "test_chips.py::test_dense_peaks_are_neither_sparse_nor_vector_figures",
        "test_chips.py::test_sms_times_clock_times_rate_is_the_vendors_figure",
    ),
    # Above the peak because the clock was above spec; a missing clock is unknown.
    "C06": (
        "test_chips.py::test_above_spec_is_noted_and_the_clock_run_gives_the_true_share",
        "test_chips.py::test_a_missing_clock_leaves_only_the_figure_at_spec",
        "test_engine.py::test_c06_an_unknown_clock_is_null_and_said_and_never_zero",
    ),
    # A result that nothing reads.
    "C09": (
        "test_field_cases.py::test_c09_a_result_that_nothing_reads_fails_the_check_and_a_flag_keeps_it",
        "test_contract_mutations.py::test_each_fault_in_a_default_case_is_refused_with_its_reason",
    ),
    # Merged and hoisted MMAs.
    "C11": (
        "test_field_cases.py::test_c11_four_equal_mmas_never_pass_as_four",
        "test_contract_mutations.py::test_each_fault_in_a_default_case_is_refused_with_its_reason",
        "test_contract_mutations.py::test_mmas_moved_out_of_the_loop_are_refused",
        "test_sass.py::test_a_self_branch_is_no_loop_and_a_loop_without_mma_is_not_the_main_loop",
    ),
    # The label says tensor core, the code does not.
    "C12": (
        "test_field_cases.py::test_c12_a_guard_that_leaves_a_scalar_loop_is_refused_where_it_does",
        "test_field_cases.py::test_c12_a_label_of_the_other_accumulator_is_refused",
        "test_field_cases.py::test_c12_a_run_says_how_many_cases_got_how_far",
        "test_chips.py::test_turing_is_not_supported_and_says_why",
        "test_nvrtc.py::test_instructions_that_an_architecture_lacks_are_not_supported_there",
    ),
    # The flush goes before the first event and nowhere else.
    "C14": (
        "test_engine.py::test_c14_cold_means_a_flush_right_before_the_event_and_no_fill_in_between",
        "test_gpu_pure.py::test_a_cold_sample_is_flushed_last_thing_before_its_event",
        "test_gpu_pure.py::test_flush_is_larger_than_l2_and_known_without_it",
    ),
    # A time that does not grow with the work.
    "C15": (
        "test_engine.py::test_c15_the_words_of_a_constant_time",
        "test_engine.py::test_c15_a_launcher_that_returns_at_once_gets_no_number",
        "test_engine.py::test_c15_a_kernel_whose_time_ignores_its_trips_gets_no_number",
    ),
    # NVML is asked about the GPU that is timed.
    "C17": (
        "test_gpu_pure.py::test_nvml_is_asked_about_the_gpu_that_is_timed",
        "test_gpu_pure.py::test_no_visible_gpu_is_the_path_without_one",
        "test_gpu_pure.py::test_a_mig_slice_has_its_own_sms_and_its_parents_clock",
        "test_chips.py::test_a_mig_slice_has_its_share_of_the_peak",
    ),
    # Shorter than the clock's tick.
    "C18": (
        "test_engine.py::test_c18_a_sample_too_short_or_no_time_at_all_is_an_error_row",
        "test_engine.py::test_samples_are_whole_launches_of_a_length_the_clock_can_tell",
    ),
    # The first launch is no sample.
    "C19": ("test_engine.py::test_c19_the_first_launch_is_no_sample_and_its_time_is_kept_apart",),
    # Headers of the compiler that is loaded.
    "C20": (
        "test_field_cases.py::test_c20_without_an_include_folder_every_header_is_missing",
        "test_field_cases.py::test_c20_the_include_folder_is_the_one_of_the_compiler_that_is_loaded",
        "test_field_cases.py::test_c20_the_templates_need_no_header_but_their_own",
        "test_nvrtc.py::test_a_missing_header_shows_the_folders_searched_and_the_compiler",
        "test_nvrtc.py::test_a_damaged_builtins_library_is_named",
    ),
    # Architecture strings.
    "C21": (
        "test_field_cases.py::test_c21_a_target_keeps_its_suffix_and_compiles_or_is_refused_with_the_list",
        "test_nvrtc.py::test_a_virtual_architecture_is_told_its_real_one",
        "test_nvrtc.py::test_an_architecture_that_nvrtc_lacks_is_not_supported_and_the_known_ones_are_listed",
    ),
    # The cache: unwritable, shared, truncated, stale.
    "C23": (
        "test_build.py::test_an_unwritable_cache_gives_a_warning_and_a_build",
        "test_build.py::test_eight_processes_compile_into_one_empty_cache",
        "test_build.py::test_a_truncated_cubin_is_compiled_again",
        "test_build.py::test_a_changed_header_or_perturbation_or_option_is_another_build",
        "test_cache.py::test_file_in_place_of_the_folder_gives_one_warning_and_goes_on",
        "test_cache.py::test_read_only_root_is_still_read",
    ),
    # A cubin one byte short.
    "C24": (
        "test_sass.py::test_damaged_cubins_are_errors_that_name_file_and_tool",
        "test_sass.py::test_a_disassembler_that_fails_or_says_nothing_is_an_error",
    ),
    # Shared memory at its limits.
    "C26": (
        "test_field_cases.py::test_c26_what_fits_fits_and_what_does_not_is_refused_with_both_numbers",
        "test_field_cases.py::test_c26_odd_sizes_are_refused_before_a_launch",
        "test_field_cases.py::test_c26_a_static_array_beyond_48_kib_names_the_case",
        "test_build.py::test_too_much_shared_memory_is_not_supported_there_and_the_others_go_on",
    ),
    # A spill that goes with the part.
    "C28": (
        "test_sass.py::test_a_register_cap_shows_as_spills_and_not_in_the_mma_count",
        "test_contract.py::test_a_spill_state_that_differs_from_full_is_noted",
        "test_contract_mutations.py::test_each_fault_in_a_default_case_is_refused_with_its_reason",
    ),
    # A driver older than the toolkit.
    "C29": (
        "test_advice.py::test_the_two_refusals_of_an_old_driver_get_two_messages_with_all_numbers",
        "test_advice.py::test_a_missing_binary_is_the_targets_or_the_drivers_fault",
        "test_gpu_pure.py::test_two_refusals_of_the_driver_have_two_answers_with_all_numbers",
    ),
    # No GPU, no driver.
    "C30": (
        "test_pipeline.py::test_c30_without_a_gpu_everything_up_to_the_contract_is_recorded",
        "test_field_cases.py::test_c30_importing_everything_loads_no_driver",
        "test_studies.py::test_every_default_case_compiles_and_keeps_its_contract",
        "test_gpu_pure.py::test_no_gpu_is_a_sentence",
        "test_cli.py::test_require_gpu_makes_it_an_error_of_its_own",
        "test_cli.py::test_publish_then_check",
    ),
    # The comparison that compared nothing.
    "C32": (
        "test_bench.py::test_c32_a_comparison_of_nothing_is_a_failure",
        "test_bench.py::test_c32_a_subset_compares_on_what_both_have",
        "test_bench.py::test_a_three_percent_longer_loop_fails_and_is_named",
    ),
    # Same name, different machine.
    "C33": (
        "test_bench.py::test_c33_only_what_matters_is_refused",
        "test_compare.py::test_c33_clock_jitter_and_the_device_ordinal_are_silent",
        "test_compare.py::test_c33_another_gpu_is_refused_unless_asked",
        "test_compare.py::test_c33_toolkit_driver_and_source_only_warn",
    ),
    # Stale or half-written results.
    "C35": (
        "test_store.py::test_a_file_cut_at_any_byte_is_readable_and_says_that_it_is_partial",
        "test_store.py::test_kill_minus_nine_in_the_second_of_two_says_one_of_two",
        "test_pipeline.py::test_ctrl_c_while_verifying_leaves_a_partial_file_with_what_is_known",
        "test_pipeline.py::test_ctrl_c_while_timing_leaves_a_partial_file",
        "test_pipeline.py::test_two_runs_write_two_files",
        "test_publish.py::test_a_partial_file_is_labelled_everywhere",
        "test_publish_tables.py::test_a_stale_row_is_labelled_with_what_refreshes_it",
        "test_bench.py::test_c35_a_stopped_run_says_what_is_missing",
    ),
    # Numbers that are not JSON numbers.
    "C36": (
        "test_store.py::test_scalars_become_json_numbers_and_nan_and_inf_a_reason",
        "test_pipeline.py::test_every_case_is_verified_timed_and_recorded",
    ),
    # Pipes in cells, and a renderer that is not installed.
    "C38": (
        "test_publish_pages.py::test_every_line_of_a_table_has_the_same_number_of_pipes",
        "test_publish_pages.py::test_escaped_text_reads_the_same_and_is_one_cell",
        "test_publish_pages.py::test_text_from_a_record_is_text_on_the_page",
        "test_publish_pages.py::test_an_empty_table_is_a_header",
        "test_publish_tables.py::test_latex_lines_have_as_many_cells_as_columns",
        "test_page.py::test_text_of_a_record_is_text",
    ),
    # Repeats are never averaged; resume only on a full match.
    "C40": (
        "test_publish.py::test_a_repeat_shows_the_newest_and_never_a_mean",
        "test_pipeline.py::test_c40_resume_measures_only_what_is_missing_and_its_full",
        "test_pipeline.py::test_c40_resume_on_another_gpu_or_with_other_conditions_reruns_all",
        "test_pipeline.py::test_c40_resume_after_a_changed_text_reruns_all",
        "test_store.py::test_resume_reruns_everything_on_another_gpu_and_after_a_changed_level",
    ),
    # A failure is a status, never a number.
    "C42": (
        "test_stats.py::test_c42_failed_rows_are_counted_and_are_no_numbers",
        "test_pipeline.py::test_c42_each_fate_has_its_status_and_reason_and_no_number",
        "test_publish.py::test_failures_have_a_reason_and_never_a_number",
        "test_cli.py::test_failed_rows_make_the_run_fail_and_skipped_ones_do_not",
    ),
    # Jinja against CUDA text.
    "C43": (
        "test_render.py::test_c43_text_that_jinja_would_misread_is_refused_with_file_and_line",
        "test_render.py::test_c43_other_misreadings_are_syntax_errors_with_file_and_line",
        "test_render.py::test_c43_cpp_text_with_a_blank_in_between_renders_as_it_is",
        "test_render.py::test_c43_a_name_that_is_not_given_is_named_with_its_place",
        "test_render.py::test_c43_what_is_no_literal_of_cpp_is_refused",
        "test_render.py::test_c43_numbers_are_written_exactly",
    ),
}


# Of the issues "From a clone to a table", "Numbers one can trust" and "Publish and compare".
ASKED_FOR = {4, 9, 11, 12, 20, 21, 23, 24, 26, 28, 29, 30, 36, 42, 43} | {
    3,
    6,
    14,
    15,
    17,
    18,
    19,
    32,
    33,
    35,
    38,
    40,
}


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the test functions of a file, read and not imported."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    assert len(found) == len(set(found)), f"{file} defines a test twice: only the last one runs"
    return frozenset(found)


def test_every_case_that_must_hold_is_listed() -> None:
    assert set(PROVED) == {f"C{number:02}" for number in ASKED_FOR}


@pytest.mark.parametrize("case", PROVED)
def test_the_tests_of_each_field_case_exist(case: str) -> None:
    assert PROVED[case]
    for node in PROVED[case]:
        file, _, name = node.partition("::")
        assert name in names_in(file), f"{case}: there is no {node}"


def test_no_test_is_defined_twice() -> None:
    for path in TESTS.glob("test_*.py"):
        assert names_in(path.name), f"{path.name} holds no test"
